"""What a KV pool of half, twice, four and eight times the size would hit, estimated from the requests as they come.

One LRU stack of prefixes, eight pools deep and cut at the sizes asked about: what lies above a cut would be cached in a
pool of that size (Mattson and others, "Evaluation techniques for storage hierarchies", 1970). A path is touched from
its end to its start, as the tree's leaves go first, so no prefix lies above a shorter one, and what a pool would hit of
a prompt is always its beginning.

Of a large pool only a sample of prefixes is followed, chosen by their hashes, and the cuts lie higher by as much:
"Efficient MRC Construction with SHARDS" (Waldspurger and others, FAST 2015). A few prefixes that everybody has could
spoil such a sample, as each is in it or is not, with all its hits. There this is mended by what is known of the
sample's size. Here more is known, for the cache itself tells what it hit. Only the difference to that is estimated:
what larger pools would hit besides, and smaller ones would not. Prefixes that everybody has are in neither.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from minisgl.core import CAPACITY_FACTORS
from minisgl.kvcache.prefix_names import prefix_names
from minisgl.kvcache.types import PUBLIC, Namespace
from minisgl.utils.arrays import Int32Array

MAX_FOLLOWED = 2**13  # prefixes on the whole stack: some 1.5 MB
AT_ONE = CAPACITY_FACTORS.index(1)
MIN_STRIDE = 16  # tokens of which one prefix is looked at, where pages are smaller


def default_stride(page_size: int) -> int:
    """Pages of which one is looked at."""
    return max(1, MIN_STRIDE // page_size)


class CapacityCurve:
    """Follows one cache. hits: tokens, for each of CAPACITY_FACTORS; no total ever falls. queried: tokens looked up.

    stride: pages of which one is looked at, the middle one, so that on average it stands for all of them; by default as
    many as there are in 16 tokens. max_followed: on the stack, so that memory is bounded, and time by request.
    """

    def __init__(
        self, num_pages: int, page_size: int = 1, *, stride: int | None = None, max_followed: int = MAX_FOLLOWED
    ) -> None:
        stride = stride or default_stride(page_size)
        most = CAPACITY_FACTORS[-1] * num_pages / stride
        rate = min(1.0, max_followed / most)
        self._first, self._step = ((stride - 1) // 2 + 1) * page_size, stride * page_size
        self._below = None if rate == 1.0 else np.uint64(rate * 2**64)
        self._weight = self._step / rate  # tokens for which one that is followed stands
        self._stack = _Stack([round(factor / CAPACITY_FACTORS[-1] * most * rate) for factor in CAPACITY_FACTORS])
        self._totals = [0.0] * len(CAPACITY_FACTORS)
        self._hits = list(self._totals)
        self.queried = 0

    @property
    def hits(self) -> tuple[float, ...]:
        return tuple(self._hits)

    @property
    def num_followed(self) -> int:
        """Prefixes on the stack."""
        return len(self._stack)

    def looked_up(self, prompt: Int32Array, hit_len: int, namespace: Namespace = PUBLIC) -> None:
        """A request starts; of its prompt the cache had the first `hit_len` tokens. All of it is cached from now on."""
        names, places = self._followed(prompt, namespace)
        # The last token is never looked up.
        num_wanted, num_hit = (bisect_left(places, self._num_places(end)) for end in (len(prompt) - 1, hit_len))
        depths = [min(depth, num_wanted) for depth in self._stack.touch(names)]
        self.queried += len(prompt)
        for index, depth in enumerate(depths):
            # Smaller: as much less as the stack says. Larger: what was hit, or what the stack says, if that is more.
            change = depth - depths[AT_ONE] if index <= AT_ONE else max(0, depth - num_hit)
            self._totals[index] += hit_len + change * self._weight
            self._hits[index] = max(self._hits[index], self._totals[index])

    def stored(self, ids: Int32Array, namespace: Namespace = PUBLIC) -> None:
        """A request ends, and all of this is cached."""
        self._stack.touch(self._followed(ids, namespace)[0])

    def forget(self) -> None:
        """Everything was purged. After a purge of less, each prefix of it may count once for a pool that is larger."""
        self._stack.clear()

    def _followed(self, ids: Int32Array, namespace: Namespace) -> tuple[list[int], Sequence[int]]:
        """Prefixes of `ids` that are in the sample, in order of their lengths, and which of all looked at they are."""
        names = prefix_names(ids, namespace, self._first, self._step)
        if self._below is None:
            return names.tolist(), range(len(names))
        chosen = (names < self._below).nonzero()[0]
        return names[chosen].tolist(), chosen.tolist()

    def _num_places(self, length: int) -> int:
        """Prefixes that are looked at of so many tokens."""
        return max(0, (length - self._first) // self._step + 1)


class _Stack:
    """An LRU stack in segments. cuts: how many of the names last touched lie above the end of each segment; rising."""

    def __init__(self, cuts: Sequence[int]) -> None:
        self._segments = [OrderedDict[int, None]() for _ in cuts]
        self._room = [end - start for start, end in zip([0, *cuts], cuts, strict=False)]

    def __len__(self) -> int:
        return sum(map(len, self._segments))

    def clear(self) -> None:
        for segment in self._segments:
            segment.clear()

    def touch(self, path: list[int]) -> list[int]:
        """Put a path on top, its start above its end; how many names from its start on lay above each cut before."""
        depths = self._depths(path)
        top = self._segments[0]
        for segment, start, end in zip(self._segments[1:], depths, depths[1:], strict=False):
            for name in path[start:end]:
                del segment[name]
        for name in reversed(path[depths[0] :]):
            top[name] = None
        for name in reversed(path[: depths[0]]):
            top.move_to_end(name)
        self._sink()
        return depths

    def _depths(self, path: list[int]) -> list[int]:
        """A name is never deeper than those after it, so that one walk finds all of them."""
        depths, at = [], 0
        for segment in self._segments:
            while at < len(path) and path[at] in segment:
                at += 1
            depths.append(at)
        return depths

    def _sink(self) -> None:
        """What has no room left goes into the next segment, and out of the last one."""
        below = [*self._segments[1:], None]
        for segment, room, following in zip(self._segments, self._room, below, strict=True):
            excess = len(segment) - room
            if excess <= 0:
                return
            for _ in range(excess):
                name, _ = segment.popitem(last=False)
                if following is not None:
                    following[name] = None

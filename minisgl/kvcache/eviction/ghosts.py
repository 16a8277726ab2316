"""What ARC remembers of evicted tokens."""

from __future__ import annotations

import hashlib
from collections import OrderedDict

import numpy as np

from minisgl.kvcache.radix_node import TOKEN_BYTES, RadixNode
from minisgl.kvcache.slots import common_prefix_len
from minisgl.utils.math import align_down


class PathHash:
    """A hash of all tokens of a path, which can be led on. The same tokens give the same one however they are split."""

    def __init__(self, node: RadixNode) -> None:
        """Of the path from the root to the end of `node`."""
        runs = []
        while node.parent is not None:
            runs.append(node.token_bytes)
            node = node.parent
        self._hash = hashlib.blake2b(b"".join(reversed(runs)), digest_size=16)

    def lead_on(self, token_bytes: bytes) -> None:
        self._hash.update(token_bytes)

    def digest(self) -> bytes:
        return self._hash.digest()


class Ghosts:
    """Runs of evicted tokens, the oldest first, known by the hash of what was before them and their first page.

    num_tokens: in all runs. Token ids are kept, at 4 bytes each, so that a run which comes back in part counts in part.
    """

    def __init__(self) -> None:
        self._runs: OrderedDict[int, tuple[bytes, int, bytes]] = OrderedDict()  # hash of what is before, page, tokens
        self._numbers: dict[bytes, int] = {}
        self._num_made = 0
        self.num_tokens = 0

    def remember(self, before: bytes, page_bytes: int, token_bytes: bytes) -> None:
        """Add a run, of pages of `page_bytes` of token ids, as the youngest. One that began as it does is forgotten."""
        self._put(self._num_made, before, page_bytes, token_bytes)
        self._num_made += 1

    def forget(self, before: bytes, first_page: bytes) -> None:
        """Forget the run that came after `before` and began with this page, if there is one."""
        number = self._numbers.get(before + first_page)
        if number is not None:
            self._drop(number)

    def recall(self, path: PathHash, page_bytes: int, token_bytes: bytes) -> int:
        """Take out what is remembered of the start of `token_bytes`, which comes after `path`; lead `path` on by it.

        How many bytes that is, of whole pages of one run. The rest of that run stays, as old as it was.
        """
        number = self._numbers.get(path.digest() + token_bytes[:page_bytes])
        if number is None:
            return 0
        run = self._runs[number][2]
        num_bytes = align_down(_common_bytes(run, token_bytes), page_bytes)
        path.lead_on(run[:num_bytes])
        if num_bytes < len(run):
            self._put(number, path.digest(), page_bytes, run[num_bytes:])
        else:
            self._drop(number)
        return num_bytes

    def shrink(self, num_tokens: int) -> None:
        """Forget the oldest, of the last one only its end, until `num_tokens` are left."""
        while (excess := (self.num_tokens - num_tokens) * TOKEN_BYTES) > 0:
            number, (before, page_bytes, run) = next(iter(self._runs.items()))
            if excess < len(run):
                self._put(number, before, page_bytes, run[:-excess])
            else:
                self._drop(number)

    def check_integrity(self) -> None:
        counted = sum(len(run) for _, _, run in self._runs.values()) // TOKEN_BYTES
        assert counted == self.num_tokens, f"{counted} evicted tokens are remembered, counted as {self.num_tokens}"
        names = {before + run[:page_bytes]: number for number, (before, page_bytes, run) in self._runs.items()}
        assert names == self._numbers, "an evicted run is not filed by its name"

    def _put(self, number: int, before: bytes, page_bytes: int, token_bytes: bytes) -> None:
        """File a run under `number`, in its old place if there is one."""
        if number in self._runs:
            self._take_off(number)
        self.forget(before, token_bytes[:page_bytes])
        self._runs[number] = before, page_bytes, token_bytes
        self._numbers[before + token_bytes[:page_bytes]] = number
        self.num_tokens += len(token_bytes) // TOKEN_BYTES

    def _drop(self, number: int) -> None:
        self._take_off(number)
        del self._runs[number]

    def _take_off(self, number: int) -> None:
        before, page_bytes, run = self._runs[number]
        del self._numbers[before + run[:page_bytes]]
        self.num_tokens -= len(run) // TOKEN_BYTES


def _common_bytes(a: bytes, b: bytes) -> int:
    """How long a prefix two runs of tokens share."""
    return common_prefix_len(np.frombuffer(a, np.int32), np.frombuffer(b, np.int32)) * TOKEN_BYTES

"""Equal prefixes that are wanted at the same time are computed once: who should wait for whom, and for how long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from minisgl.kvcache.slots import common_prefix_len
from minisgl.kvcache.types import Namespace
from minisgl.scheduler.cache_manager import CacheManager
from minisgl.scheduler.request import Request
from minisgl.scheduler.waiting import Waiting
from minisgl.utils.arrays import Int32Array
from minisgl.utils.math import align_down, div_ceil

# Tokens worth waiting a step for; or half of what is left, if that is less. Without such a bound, one common first
# token (BOS, say) would make cold prompts run one after the other.
WORTH_A_STEP = 32

Key = tuple[Namespace, int, bytes]


class Leaders:
    """Running requests that are computing what they share with others, found by the first tokens that they compute.

    Filed under their first page, first 2 pages, 4, ... of what they did not find cached, up to WORTH_A_STEP tokens:
    whoever should wait for one has the same tokens there, so a look-up or few find it however many are running.
    """

    def __init__(self, manager: CacheManager) -> None:
        self._manager = manager
        self._windows = _windows(manager.page_size)
        self._keys: dict[Request, list[Key]] = {}
        self._requests: dict[Key, dict[Request, None]] = {}
        self._starts: dict[Namespace, Counter[int]] = {}  # how many of a namespace began to compute where

    def add(self, request: Request) -> None:
        """It was admitted just now. One that had been here before is pruned by then."""
        if not self._leads(request, request.prefill_len):
            return
        start, ids = request.device_len, request.ids(request.prefill_len)
        windows = [window for window in self._windows if start + window <= len(ids)]
        if not windows:
            return
        keys = [(request.namespace, start, ids[start : start + window].tobytes()) for window in windows]
        self._keys[request] = keys
        for key in keys:
            self._requests.setdefault(key, {})[request] = None
        self._starts.setdefault(request.namespace, Counter())[start] += 1

    def prune(self) -> None:
        """Forget those that have computed their prompt, or have ended."""
        for request in list(self._keys):
            if not self._leads(request, request.prefill_len):
                self._remove(request)

    def find(self, waiting: Waiting) -> tuple[Request, int] | None:
        """The one that is computing most of what `waiting` needs, if waiting a step for it spares enough.

        With it, how far it is worth waiting for: whole pages, at most all tokens but the last.
        """
        request = waiting.request
        prompt = request.ids(request.prefill_len)[:-1]
        best = None
        for leader in self._candidates(request.namespace, prompt, waiting.cached_len):
            shared_len = self._aligned(common_prefix_len(prompt, leader.ids(leader.prefill_len)))
            if best is None or shared_len > best[1]:
                best = leader, shared_len
        if best is None:
            return None
        # What the leader has stored may not have been noticed yet.
        matched_len = max(waiting.cached_len, self._aligned(best[0].committed_len))
        return best if best[1] - matched_len >= _worth(request.prefill_len - matched_len) else None

    def computes_for(self, waiting: Waiting) -> bool:
        """Whether the leader of `waiting` is still at it, and what it computes can be found afterwards."""
        return waiting.leader is not None and self._leads(waiting.leader, waiting.leader_len)

    def _leads(self, request: Request, length: int) -> bool:
        if not request.is_running or request.committed_len >= length:
            return False
        assert request.allocation is not None
        return self._manager.shares(request.allocation)

    def _candidates(self, namespace: Namespace, prompt: Int32Array, matched_len: int) -> Iterator[Request]:
        """Those that have the tokens in common which it takes to be worth a step."""
        for start in self._starts.get(namespace, ()):
            base = max(start, matched_len)
            needed = base - start + _worth(len(prompt) + 1 - base)
            window = max((w for w in self._windows if w <= needed), default=self._windows[0])
            yield from self._requests.get((namespace, start, prompt[start : start + window].tobytes()), ())

    def _remove(self, request: Request) -> None:
        for key in self._keys.pop(request):
            del self._requests[key][request]
            if not self._requests[key]:
                del self._requests[key]
        namespace, start, _ = key
        starts = self._starts[namespace]
        starts[start] -= 1
        if not starts[start]:
            del starts[start]
        if not starts:
            del self._starts[namespace]

    def _aligned(self, num_tokens: int) -> int:
        return align_down(num_tokens, self._manager.page_size)


def _worth(num_left: int) -> int:
    """How many of a request's uncomputed tokens another must spare it to be worth a step's wait."""
    return min(WORTH_A_STEP, div_ceil(num_left, 2))


def _windows(page_size: int) -> list[int]:
    """1, 2, 4, ... pages in tokens: up to WORTH_A_STEP, at least one page."""
    windows = [page_size]
    while 2 * windows[-1] <= WORTH_A_STEP:
        windows.append(2 * windows[-1])
    return windows

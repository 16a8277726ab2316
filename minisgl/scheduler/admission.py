"""Who may start: the waiting requests, first come, first served."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from minisgl.kvcache.base import BaseCacheHandle
from minisgl.scheduler.cache_manager import CacheManager
from minisgl.scheduler.joining import find_leader
from minisgl.scheduler.request import Request


class Admission:
    """Owns the queue. A request that does not fit now is not looked at again before something was given back."""

    def __init__(self, cache_manager: CacheManager) -> None:
        self._manager = cache_manager
        self._waiting: dict[int, Request] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def uids(self) -> list[int]:
        return list(self._waiting)

    def add(self, request: Request) -> None:
        self._waiting[request.uid] = request

    def find(self, uid: int) -> Request | None:
        return self._waiting.get(uid)

    def forget_leaders(self) -> None:
        """After a flush nobody waits for what was being computed: it will not be stored."""
        for request in self._waiting.values():
            request.leader = None

    def remove(self, uid: int) -> bool:
        """Whether it was waiting."""
        return self._waiting.pop(uid, None) is not None

    def admit(self, running: Iterable[Request]) -> Iterator[Request]:
        """Start waiting requests one by one, in order, until one does not fit. running: a view that grows with them.

        One whose prefix a running request is computing right now is passed over until that is done. The walk is
        bounded by the free rows, so it costs the same however long the queue is.
        """
        for request in list(islice(self._waiting.values(), self._manager.num_free_rows)):
            if request.awaits_leader:
                continue
            if request.blocked_epoch == self._manager.epoch:
                return
            handle = self._manager.match(request.wanted_ids, request.namespace)
            if self._finds_leader(request, running, handle.cached_len):
                continue
            if not self._start(request, handle):
                return
            yield request

    def _start(self, request: Request, handle: BaseCacheHandle) -> bool:
        allocation = self._manager.admit(handle, request.max_kv_len, request.namespace)
        if allocation is None:
            request.blocked_epoch = self._manager.epoch
            return False
        self.remove(request.uid)
        request.start(allocation)
        return True

    def _finds_leader(self, request: Request, running: Iterable[Request], matched_len: int) -> bool:
        """Whether a running request is computing more of this one's prefix than the cache has; then wait for it."""
        if not request.reuses_prefix:
            return False
        prefilling = [r for r in running if self._may_lead(r, request)]
        request.leader, request.leader_len = find_leader(request, prefilling, matched_len, self._manager.page_size)
        return request.leader is not None

    def _may_lead(self, running: Request, request: Request) -> bool:
        """Whether it is still computing its prompt, and will store it where `request` can find it."""
        if not running.is_running or running.committed_len >= running.prompt_len:
            return False
        assert running.allocation is not None
        return running.namespace == request.namespace and self._manager.shares(running.allocation)

"""Which rows of a batch begin with the same cached pages."""

from __future__ import annotations

from minisgl.core import PrefixGroup
from minisgl.kvcache.types import BaseCacheHandle
from minisgl.scheduler.cache_manager import CacheManager
from minisgl.scheduler.work import Lineup


class Grouping:
    """Keeps the groups of the last batch: while its rows hold the same prefixes, they are those of the next one too."""

    def __init__(self, manager: CacheManager) -> None:
        self._manager = manager
        self._lineup: Lineup | None = None
        self._num_stores = -1
        self._handles: list[BaseCacheHandle] = []
        self._groups: tuple[PrefixGroup, ...] = ()

    def of(self, lineup: Lineup) -> tuple[PrefixGroup, ...]:
        """`Batch.groups` for these rows, the very same tuple if they hold what the last ones held.

        What is split, inserted or purged meanwhile moves no page that they hold.
        """
        if lineup is self._lineup and self._manager.num_stores == self._num_stores:
            return self._groups
        self._lineup, self._num_stores = lineup, self._manager.num_stores
        handles = [request.allocation.handle for request in lineup.requests if request.allocation is not None]
        if handles != self._handles:
            self._groups, self._handles = self._manager.prefix_cache.find_groups(handles), handles
        return self._groups

"""Which rows of a batch begin with the same cached pages."""

from __future__ import annotations

from minisgl.core import PrefixGroup
from minisgl.kvcache.base import BaseCacheHandle, BasePrefixCache


class Grouping:
    """Keeps the groups of the last batch: while its rows hold the same prefixes, they are those of the next one too."""

    def __init__(self, cache: BasePrefixCache) -> None:
        self._cache = cache
        self._handles: list[BaseCacheHandle] = []
        self._groups: tuple[PrefixGroup, ...] = ()

    def of(self, handles: list[BaseCacheHandle]) -> tuple[PrefixGroup, ...]:
        """`Batch.groups` for rows that hold these prefixes, the very same tuple if that is what the last ones held.

        handles: one for each row, locked. What is split, inserted or purged meanwhile moves no page that they name.
        """
        if handles != self._handles:
            self._groups, self._handles = self._cache.find_groups(handles), handles
        return self._groups

"""What one running request holds of the KV pool, and what it was promised."""

from __future__ import annotations

from dataclasses import dataclass

from minisgl.kvcache.base import BaseCacheHandle, Namespace


@dataclass(slots=True, eq=False)
class Allocation:
    """A request's pages: `num_pages` cells of row `table_idx`, of which the handle's belong to the prefix cache.

    0 ........ handle.cached_len ........ num_pages ........ promised_pages   (in pages)
    |  in the tree, locked  |  private  |  promised, not taken yet  |

    raised_pages: those of promised_pages that were added later, with no regard to whether the pool has them.
    hit_len: tokens cached at admission. priority: of what it stores. is_stale: what it began with was purged since,
    so it stores nothing any more.
    """

    table_idx: int
    handle: BaseCacheHandle
    num_pages: int
    promised_pages: int
    hit_len: int
    namespace: Namespace
    priority: int = 0
    raised_pages: int = 0
    is_stale: bool = False

    @property
    def reserved_pages(self) -> int:
        """Promised and not taken yet."""
        return self.promised_pages - self.num_pages

    def promise(self, num_pages: int) -> int:
        """Promise `num_pages` in all, or what it holds if that is more; how many more than before."""
        change = max(num_pages, self.num_pages) - self.promised_pages
        self.promised_pages += change
        self.raised_pages = max(0, self.raised_pages + change)
        return change

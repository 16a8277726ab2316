"""What one running request holds of the KV pool, and what it was promised."""

from __future__ import annotations

from minisgl.kvcache.types import BaseCacheHandle, Namespace
from minisgl.scheduler.rows import Rows


class Allocation:
    """A request's pages: `num_pages` cells of row `table_idx`, of which the handle's belong to the prefix cache.

    0 ........ handle.cached_len ........ num_pages ........ promised_pages   (in pages)
    |  in the tree, locked  |  private  |  promised, not taken yet  |

    rows: where these two numbers are. raised_pages: those of promised_pages that were added later, with no regard to
    whether the pool has them. hit_len: tokens cached at admission. priority: of what it stores. is_stale: what it began
    with was purged since, so it stores nothing any more.
    """

    __slots__ = ("handle", "hit_len", "is_stale", "namespace", "priority", "raised_pages", "rows", "table_idx")

    def __init__(
        self, rows: Rows, table_idx: int, handle: BaseCacheHandle, hit_len: int, namespace: Namespace, priority: int
    ) -> None:
        self.rows = rows
        self.table_idx = table_idx
        self.handle = handle
        self.hit_len = hit_len
        self.namespace = namespace
        self.priority = priority
        self.raised_pages = 0
        self.is_stale = False

    @property
    def num_pages(self) -> int:
        return int(self.rows.num_pages[self.table_idx])

    @property
    def promised_pages(self) -> int:
        return int(self.rows.promised_pages[self.table_idx])

    @property
    def reserved_pages(self) -> int:
        """Promised and not taken yet."""
        return self.promised_pages - self.num_pages

    def promise(self, num_pages: int) -> int:
        """Promise `num_pages` in all, or what it holds if that is more; how many more than before."""
        change = max(num_pages, self.num_pages) - self.promised_pages
        self.rows.promised_pages[self.table_idx] += change
        self.raised_pages = max(0, self.raised_pages + change)
        return change

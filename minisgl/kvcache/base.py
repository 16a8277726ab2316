"""The prefix cache's interface: what every kind of it can do, whatever it keeps.

Token ids and slots are int32 on the host, NumPy arrays or CPU tensors. A page is `page_size` consecutive slots;
`pages` are page numbers, `indices` are slots (page * page_size + offset). Only whole pages are cached.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar

import torch

from minisgl.core import Explanation, PrefixGroup, get_global_ctx
from minisgl.kvcache.types import (
    DEFAULT_EVICTION,
    PUBLIC,
    BaseCacheHandle,
    CachedRun,
    Ids,
    InsertResult,
    MatchResult,
    Namespace,
    SizeInfo,
    Watch,
)
from minisgl.kvcache.view import CacheView
from minisgl.utils.arrays import NO_IDS, Int32Array


class BasePrefixCache(ABC):
    """Remembers which pages hold the KV of which token prefixes. Owns no tensors and no free pages.

    shares: whether a prefix inserted by one request can be matched by another (false: nothing is ever reused).
    view: of what is cached, for people.
    """

    shares: ClassVar[bool]
    view: CacheView

    def __init__(
        self,
        device: torch.device,
        page_size: int | None = None,
        eviction: str = DEFAULT_EVICTION,
        ghost_tokens: int | None = None,
    ) -> None:
        """device: where the KV lives; all that is kept and given out here is on the host all the same.

        page_size: None takes the global context's. eviction: the name of the policy by which pages go when room is
        needed. ghost_tokens: how many evicted tokens are remembered, to explain by them; None: nothing is explained.
        Raises ValueError for a page size below 1 and for a policy that there is not.
        """
        self.device = device
        self.page_size = get_global_ctx().page_size if page_size is None else page_size
        if self.page_size < 1:
            raise ValueError(f"page_size={self.page_size} must be at least 1")

    @abstractmethod
    def match_prefix(self, input_ids: Ids, namespace: Namespace = PUBLIC) -> MatchResult:
        """Longest prefix of `input_ids` that is cached in `namespace`, in whole pages."""

    @abstractmethod
    def probe(self, input_ids: Ids, namespace: Namespace = PUBLIC) -> int:
        """How many tokens `match_prefix` would find. Changes nothing: no recency, no node, no clock."""

    @abstractmethod
    def explain(
        self, input_ids: Ids, namespace: Namespace = PUBLIC, handle: BaseCacheHandle | None = None
    ) -> Explanation:
        """Why the tokens of a prompt would be computed, or not, if it were admitted now. Changes nothing.

        handle: the match of all its tokens but the last, where that is known. Nothing is `joined`; where nothing is
        explained, all is `not_looked_up`.
        """

    @abstractmethod
    def note_tail(self, handle: BaseCacheHandle, input_ids: Ids, namespace: Namespace = PUBLIC) -> None:
        """A request is over that had these tokens, fewer than a page, after those of `handle`, which is still locked.

        They are in no page, and remembered to explain by them, where that is done.
        """

    @abstractmethod
    def insert_pages(
        self, input_ids: Ids, pages: Int32Array, namespace: Namespace = PUBLIC, priority: int = 0
    ) -> InsertResult:
        """Remember that `pages` [len(input_ids) // page_size] hold the KV of `input_ids`; a partial page is ignored.

        priority: what the eviction policy of that name goes by; the others do not.
        """

    @abstractmethod
    def insert_prefix(self, input_ids: Ids, indices: Ids, namespace: Namespace = PUBLIC) -> InsertResult:
        """`insert_pages` with one slot a token instead of one number a page."""

    @abstractmethod
    def lock_handle(self, handle: BaseCacheHandle, unlock: bool = False) -> None:
        """Keep the handle's whole path from eviction, or give that up again. Locks count."""

    @abstractmethod
    def find_groups(self, handles: Sequence[BaseCacheHandle]) -> tuple[PrefixGroup, ...]:
        """Which of these locked prefixes lie in the same pages and how far, as in `Batch.groups`; a row is an index."""

    @abstractmethod
    def evict_pages(self, num_pages: int, trim: bool = False) -> Int32Array:
        """Forget unlocked pages, in the order of the eviction policy; the numbers of the pages freed.

        trim: exactly `num_pages`, of the last leaf only as many from its end as are needed; otherwise leaves go whole,
        so it may be more. Asking for more than is evictable is the caller's mistake (AssertionError).
        """

    @abstractmethod
    def evict(self, size: int) -> torch.Tensor:
        """`evict_pages` in tokens, leaves go whole: at least `size` of them; their slots [freed] int32."""

    @abstractmethod
    def purge(self, namespace: Namespace | None = None, prefix: Ids = NO_IDS) -> Int32Array:
        """Match nothing any more that begins with `prefix` in `namespace` (None: in every one).

        What led only there goes too. Returns the numbers of the pages freed: those nobody has locked. What is locked
        stays readable by its handles; its pages come out of `reclaim` when the last lock is given up.
        """

    def flush(self) -> Int32Array:
        """`purge` of everything."""
        return self.purge()

    @abstractmethod
    def reclaim(self) -> Int32Array:
        """Pages freed since the last call because the last lock on something purged was given up."""

    @abstractmethod
    def watch(self, input_ids: Ids, namespace: Namespace = PUBLIC) -> Watch:
        """Follow how much of a waiting prompt is cached, from now until `unwatch`. Refreshes and splits nothing.

        input_ids: [T], not copied: must not change while it is watched.
        """

    @abstractmethod
    def unwatch(self, watch: Watch) -> None:
        """The prompt waits no longer."""

    @abstractmethod
    def expect(self, watch: Watch, expected: bool, order: int | None = None) -> None:
        """Whether it will run soon, so that the end of what it would hit should go after others.

        order: from 1, different for each; of two that are expected the one with the smaller order runs sooner. None:
        later than all that were expected before. May split a node; refreshes nothing.
        """

    @abstractmethod
    def advance_watches(self, budget: int) -> list[Watch]:
        """Follow insertions by at most `budget` watches; those whose cached_len has changed since the last call.

        What is taken away shortens a watch at once; what is inserted lengthens it here, so that a step in which many
        wait for the same prompt takes no longer than any other.
        """

    @property
    @abstractmethod
    def size_info(self) -> SizeInfo:
        """Tokens cached now."""

    @abstractmethod
    def cached_pages(self) -> Int32Array:
        """Every page the cache holds, in no order; for accounting, not for hot paths."""

    @abstractmethod
    def runs(self, head_len: int) -> Iterator[CachedRun]:
        """Every node with its first `head_len` tokens, parents before children, older children first."""

    @abstractmethod
    def reset(self) -> None:
        """Forget everything; AssertionError if anything is locked."""

    @abstractmethod
    def check_integrity(self) -> None:
        """Recount everything; AssertionError naming what is wrong."""

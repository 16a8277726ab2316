"""The prefix cache's interface: what every kind of it can do, whatever it keeps.

Token ids and slots are int32 on the host, NumPy arrays or CPU tensors. A page is `page_size` consecutive slots;
`pages` are page numbers, `indices` are slots (page * page_size + offset). Only whole pages are cached.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, TypeVar

import torch

from minisgl.core import Explanation, PrefixGroup, get_global_ctx
from minisgl.core.picture import NodeUse, TreePath, TreePicture
from minisgl.utils.arrays import NO_IDS, Int32Array

Ids = torch.Tensor | Int32Array
T = TypeVar("T")
Slices = Generator[None, None, T]  # work in slices of a millisecond; between two of them the cache may change


class Namespace(NamedTuple):
    """Who shares cached prefixes: those whose namespaces are equal part by part. Parts are never joined to one text.

    cache_salt: the client's. adapter: the name of what changes the weights, so that the same tokens have other KV.
    """

    cache_salt: str = ""
    adapter: str = ""


PUBLIC = Namespace()
DEFAULT_EVICTION = "lru"


class BaseCacheHandle(ABC):
    """A prefix that was found or inserted. Its slots stay valid only while it is locked.

    cached_len: its length in tokens, a multiple of the page size.
    """

    __slots__ = ("cached_len",)
    cached_len: int

    @abstractmethod
    def get_matched_pages(self) -> Int32Array:
        """[cached_len / page_size] page numbers, in order of position; a copy."""

    @abstractmethod
    def get_matched_indices(self) -> torch.Tensor:
        """[cached_len] int32 slots, in order of position; a copy."""


@dataclass(slots=True)
class MatchResult:
    """cuda_handle: the longest prefix on the device (the predecessor's name)."""

    cuda_handle: BaseCacheHandle


class InsertResult(NamedTuple):
    """cached_len: tokens that were in the cache before this insertion: the caller's own pages for them are duplicates.

    handle: everything inserted, not locked.
    """

    cached_len: int
    handle: BaseCacheHandle


class SizeInfo(NamedTuple):
    """Cached tokens: evictable ones are locked by nobody, protected ones by somebody."""

    evictable_size: int
    protected_size: int

    @property
    def total_size(self) -> int:
        return self.evictable_size + self.protected_size


class CachedRun(NamedTuple):
    """One node, for people to look at. depth: 0 below the root. head: its first token ids. length: of all of them."""

    depth: int
    head: Int32Array
    length: int
    ref_count: int


class Watch:
    """A waiting prompt's place in the cache.

    cached_len: how many of its tokens are cached, in whole pages. The cache sets it, nobody else. It may be too small
    until `advance_watches` has come to it; too large it never is.
    """

    __slots__ = ("cached_len",)

    def __init__(self, cached_len: int) -> None:
        self.cached_len = cached_len


class BasePrefixCache(ABC):
    """Remembers which pages hold the KV of which token prefixes. Owns no tensors and no free pages.

    shares: whether a prefix inserted by one request can be matched by another (false: nothing is ever reused).
    """

    shares: ClassVar[bool]

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
    def expect(self, watch: Watch, expected: bool) -> None:
        """Whether it will run soon, so that the end of what it would hit should go after others.

        Who is expected later than others is taken to run later too. May split a node; refreshes nothing.
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
    def picture(self, number: int | None, max_nodes: int, head_len: int) -> Slices[TreePicture | None]:
        """All trees, or what is below the node of that number; None if it is gone. Folded to at most `max_nodes` nodes.

        head_len: how many of a node's first token ids are told. Exact if nothing changes until it is done; else a
        proper tree all the same, see `folding`.
        """

    @abstractmethod
    def use(
        self, number: int, handles: Mapping[int, BaseCacheHandle], watches: Mapping[int, Watch], tail_len: int
    ) -> Slices[NodeUse | None]:
        """Who of these, by uid, leads through the node of that number; None if it is gone.

        tail_len: how many of the last token ids of its path are told.
        """

    @abstractmethod
    def path(self, input_ids: Ids, namespace: Namespace = PUBLIC) -> TreePath:
        """Where `match_prefix` would lead. Changes nothing."""

    @abstractmethod
    def reset(self) -> None:
        """Forget everything; AssertionError if anything is locked."""

    @abstractmethod
    def check_integrity(self) -> None:
        """Recount everything; AssertionError naming what is wrong."""

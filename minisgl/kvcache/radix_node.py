"""One node of the radix tree: a run of tokens without a branch, and the pages that hold their KV."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from minisgl.kvcache.slots import INT32, Tokens, common_prefix_len, pages_to_slots
from minisgl.utils.arrays import Int32Array

if TYPE_CHECKING:
    from minisgl.kvcache.ghost import Fork
    from minisgl.kvcache.watch import Watchers

TOKEN_BYTES = 4
PAGE_BYTES = 4  # of a page's number


class RadixNode:
    """A run of whole pages below `parent`.

    children: by the bytes of their first page, in which any two of them differ.
    token_bytes: the run's token ids, int32, 4 bytes each. page_bytes: the same of its page numbers, in order of
    position. Both are own memory: nothing pins a caller's prompt.
    ref_count: locks on this node or below it. The root has one for ever, so it is never evicted.
    last_access: the cache's clock when the node was last visited; never later than the parent's.
    queued: which heap of the eviction queue has its entry, 0: none. note: the eviction policy's own, for it alone.
    watchers: waiting prompts whose match ends here, by how far they match and the page they would need next.
    forks: where evicted runs that are remembered left this one, by bytes from its beginning; None if there are none.
    expected: what `RadixWatch.expected` says of those of them that will run soon, ascending; None if none will.
    dead: no `children` lead to it any more. It was purged, and `parent` leads up as ever while somebody has it locked;
    or it was absorbed by its only child.
    """

    __slots__ = (
        "__weakref__", "children", "dead", "expected", "forks", "last_access", "note", "page_bytes", "parent",
        "queued", "ref_count", "token_bytes", "watchers",
    )  # fmt: skip

    def __init__(self, token_bytes: bytes, page_bytes: bytes, last_access: int, ref_count: int = 0) -> None:
        self.children = NO_CHILDREN
        self.parent: RadixNode | None = None
        self.token_bytes = token_bytes
        self.page_bytes = page_bytes
        self.ref_count = ref_count
        self.last_access = last_access
        self.queued = 0
        self.note = 0
        self.expected: list[int] | None = None
        self.watchers: Watchers | None = None
        self.forks: dict[int, Fork] | None = None
        self.dead = False

    @property
    def length(self) -> int:
        """Tokens in this node alone."""
        return len(self.token_bytes) // TOKEN_BYTES

    @property
    def num_pages(self) -> int:
        return len(self.page_bytes) // PAGE_BYTES

    @property
    def page_size(self) -> int:
        """Tokens a page; 0 for the root, which has none."""
        return self.length // max(1, self.num_pages)

    @property
    def first_page(self) -> bytes:
        """The key under which the parent knows this node."""
        return self.token_bytes[: len(self.token_bytes) // self.num_pages]

    @property
    def pages(self) -> Int32Array:
        """[P] int32 page numbers; a copy."""
        return np.frombuffer(bytearray(self.page_bytes), np.int32)

    @property
    def _key(self) -> torch.Tensor:
        """[length] int32 token ids; a copy."""
        return torch.from_numpy(np.frombuffer(self.token_bytes, np.int32).copy())

    @property
    def value(self) -> torch.Tensor:
        """[length] int32 slots; a copy."""
        return torch.from_numpy(pages_to_slots(self.pages, self.page_size))

    @property
    def evictable(self) -> bool:
        """Whether it is an unlocked leaf. An inner node is the prefix of others, which would be cut off."""
        return self.ref_count == 0 and not self.children and not self.dead

    def __repr__(self) -> str:
        return f"node(pages={self.pages.tolist()}, ref_count={self.ref_count}, last_access={self.last_access})"

    def hang(self, parent: RadixNode, first_page: bytes) -> None:
        """Hang this node below `parent`, in place of what is there under the same first page."""
        self.parent = parent
        if parent.children is NO_CHILDREN:
            parent.children = {first_page: self}
        else:
            parent.children[first_page] = self

    def detach(self) -> RadixNode:
        """Take this node off its parent, which is returned."""
        parent = self.parent
        assert parent is not None, "the root cannot be detached"
        del parent.children[self.first_page]
        self.parent = None
        return parent

    def count_matching(self, tokens: Tokens) -> int:
        """How many tokens at the start of `tokens` (at least one, at most `length`) are this node's too."""
        theirs = np.frombuffer(tokens, INT32)
        return common_prefix_len(np.frombuffer(self.token_bytes, INT32, len(theirs)), theirs)

    def split_at(self, pos: int) -> RadixNode:
        """Cut in two after `pos` tokens (whole pages); the front half, a new node, becomes the parent and is returned.

            parent -> [A B C D]     split_at(2)     parent -> [A B] -> [C D]

        This node stays the end of its path, so handles to it stay right. Both halves keep its locks and its time.
        """
        assert self.parent is not None
        assert 0 < pos < self.length, f"cannot split a node of {self.length} tokens at {pos}"
        cut, page_cut = pos * TOKEN_BYTES, pos // self.page_size * PAGE_BYTES
        front = RadixNode(self.token_bytes[:cut], self.page_bytes[:page_cut], self.last_access, self.ref_count)
        front.note = self.note
        front.hang(self.parent, self.first_page)
        self.token_bytes, self.page_bytes = self.token_bytes[cut:], self.page_bytes[page_cut:]
        self.hang(front, self.first_page)
        return front

    def absorb_parent(self) -> None:
        """Undo a split: take over the tokens of the parent, which has no other child, and its place.

            parent -> [A B] -> [C D]     absorb_parent()     parent -> [A B C D]

        This node is still the end of its path. The parent is dead; its only child tells what has become of it.
        """
        parent = self.parent
        assert parent is not None
        assert parent.parent is not None, "the root cannot be absorbed"
        self.token_bytes = parent.token_bytes + self.token_bytes
        self.page_bytes = parent.page_bytes + self.page_bytes
        self.hang(parent.parent, self.first_page)
        parent.parent, parent.dead = None, True
        parent.token_bytes = parent.page_bytes = b""

    def trim(self, num_pages: int) -> bytes:
        """Take the last `num_pages` pages off this leaf, which has more; their numbers, 4 bytes each."""
        assert num_pages < self.num_pages, f"cannot trim {num_pages} pages off {self}"
        keep, page_size = self.num_pages - num_pages, self.page_size
        gone = self.page_bytes[keep * PAGE_BYTES :]
        self.page_bytes = self.page_bytes[: keep * PAGE_BYTES]
        self.token_bytes = self.token_bytes[: keep * page_size * TOKEN_BYTES]
        return gone


# Of every leaf: most nodes are leaves, and a dict of its own would be a seventh of one. Never written to.
NO_CHILDREN: dict[bytes, RadixNode] = {}

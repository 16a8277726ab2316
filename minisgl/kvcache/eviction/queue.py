"""What a radix tree asks of an eviction policy: which unlocked leaf of one namespace goes next."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

from minisgl.kvcache.radix_node import RadixNode


class EvictionQueue(ABC):
    """The unlocked leaves of one namespace in a policy's order, kept from one eviction to the next.

    Nothing has to be told when a node is visited, locked or grown upon: what is filed is checked when it comes up.
    The tree calls `push` when a node may have become an unlocked leaf, `expected_later`, `removed` and `absorbed` as
    they say, and the notes (`matched`, `inserted`, `evicting`) only of a policy that `takes_notes`. Both halves of a
    split keep the node's note; a node may absorb its parent only where their notes are equal.

    on_change: called whenever `order_key` may have become smaller. That it has become larger, nobody is told.

    Look-ahead: a leaf at which somebody is expected goes after all others, whatever the policy; of such leaves first
    the one that will be needed last.
    """

    takes_notes: ClassVar[bool] = False
    on_change: Callable[[], object] | None = None

    @abstractmethod
    def push(self, node: RadixNode) -> None:
        """File `node` if it is an unlocked leaf that is not filed yet; else nothing happens."""

    @abstractmethod
    def first(self) -> RadixNode | None:
        """The leaf to go next; None if no leaf is unlocked. It stays filed, so it may be trimmed and stays first."""

    @abstractmethod
    def take(self, leaf: RadixNode) -> None:
        """Take out `leaf`, which `first` has just shown and which goes whole."""

    @abstractmethod
    def order_key(self) -> int | None:
        """How urgently the policy, without look-ahead, would have a leaf of this namespace go; None: there is none.

        Of two queues of one policy the one with the smaller key gives its leaf. That a leaf is expected does not make
        its namespace give less, and having spared it does not make it give more: the leaf that went in its stead
        leaves it its key, for this purpose. So what one namespace waits for hardly changes what another one keeps: by
        the sizes of the leaves that were exchanged.
        """

    @abstractmethod
    def expected_later(self, node: RadixNode) -> None:
        """One that was expected at `node`, which is filed, is not any more: all others are, or nobody is."""

    def removed(self, node: RadixNode) -> None:
        """`node` left the tree, or lives on only for its readers, and was not taken out by `take`."""
        node.queued = 0

    def absorbed(self, node: RadixNode) -> None:
        """`node` has left the tree and its tokens live on in its only child."""
        node.queued = 0

    @abstractmethod
    def clear(self) -> None:
        """Forget everything."""

    @abstractmethod
    def check_integrity(self, nodes: Sequence[RadixNode]) -> None:
        """AssertionError if an unlocked leaf of `nodes` (the namespace's) is not filed, or is filed wrongly."""

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change()

    def matched(self, node: RadixNode) -> None:  # noqa: B027  (most policies need not know)
        """A match ended in `node` (maybe the root). Comes after the visit, and after the split if there was one."""

    def inserted(self, node: RadixNode, is_new: bool, priority: int) -> None:  # noqa: B027  (most policies need not know)
        """An insertion ended in `node`. is_new: it is a leaf made just now, which is pushed after this."""

    def evicting(self, leaf: RadixNode, num_tokens: int) -> None:  # noqa: B027  (most policies need not know)
        """The last `num_tokens` tokens of `leaf` are about to be evicted: all of them, after `take`, or fewer.

        It is what `first` has just shown, still whole, and its parent still leads up.
        """


def check_all_filed(nodes: Sequence[RadixNode]) -> None:
    """AssertionError if an unlocked leaf of `nodes` is in no heap."""
    unfiled = [node for node in nodes if node.evictable and not node.queued]
    assert not unfiled, f"unlocked leaves that are not queued for eviction: {unfiled}"

"""What people see of a prefix cache."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from typing import TypeVar

from minisgl.core.picture import NodeUse, TreePath, TreePicture
from minisgl.kvcache.types import PUBLIC, BaseCacheHandle, Ids, Namespace, Watch

T = TypeVar("T")
Slices = Generator[None, None, T]  # work in slices of a millisecond; between two of them the cache may change


class CacheView(ABC):
    """Gives out numbers of nodes, and what is known of those that still are there. It only looks."""

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

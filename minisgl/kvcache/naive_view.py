"""What people see of a cache that keeps nothing: a root."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from minisgl.core.picture import COLUMNS, NodeUse, TreePath, TreePicture
from minisgl.kvcache.types import PUBLIC, BaseCacheHandle, Ids, Namespace, Watch
from minisgl.kvcache.view import CacheView, Slices
from minisgl.utils.arrays import NO_IDS

ROOT = 1  # the number of the only node that is ever shown
ROOT_ROW = {"parent": -1, "subtree_nodes": 1}


class NaiveView(CacheView):
    """Everybody leads through the root."""

    def __init__(self, page_size: int) -> None:
        self._page_size = page_size

    def picture(self, number: int | None, max_nodes: int, head_len: int) -> Slices[TreePicture | None]:
        """A root and nothing below it."""
        yield from ()
        if number not in (None, ROOT):
            return None
        row = np.array([ROOT_ROW.get(name, 0) for name in COLUMNS], np.int32)
        salts = [""] if head_len else []
        head_lens = np.zeros(len(salts), np.int32)
        return TreePicture(0, self._page_size, 0, 0, 1, [], [ROOT], row, head_lens, NO_IDS, salts)

    def use(
        self, number: int, handles: Mapping[int, BaseCacheHandle], watches: Mapping[int, Watch], tail_len: int
    ) -> Slices[NodeUse | None]:
        yield from ()
        return NodeUse(0, 0, 0, 0, [*handles], [*watches], NO_IDS) if number == ROOT else None

    def path(self, input_ids: Ids, namespace: Namespace = PUBLIC) -> TreePath:
        return TreePath([ROOT], 0)

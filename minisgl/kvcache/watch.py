"""Waiting prompts, hung on the nodes in which their matches end, so that nobody matches a queue again and again.

A watch hangs on a node under how far it matches and which page it would need next. So a new node finds those that it
lets go on by one look-up; their place is only noted then, and they are walked on a few at a time. What is taken away
shortens the watches on it at once: they fall to what is left.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Collection, Iterable
from itertools import islice

from minisgl.kvcache.radix_forest import RadixRoot
from minisgl.kvcache.radix_node import TOKEN_BYTES, RadixNode
from minisgl.kvcache.radix_walk import path_len, seek
from minisgl.kvcache.slots import Tokens
from minisgl.kvcache.types import Watch

Place = tuple[int, bytes]  # tokens matched, and the page after them; b"" if the prompt has no further one
Watchers = dict[Place, dict["RadixWatch", None]]


class RadixWatch(Watch):
    """root: its namespace's. tokens: the prompt's whole pages. node: where its match ends; None after `unwatch`.

    expected: where it stands, from 1, among the prompts that run soon, the smaller the sooner; 0 if it is not one.
    """

    __slots__ = ("expected", "node", "root", "tokens")

    def __init__(self, root: RadixRoot, tokens: Tokens) -> None:
        super().__init__(0)
        self.root = root
        self.tokens = tokens
        self.node: RadixNode | None = None
        self.expected = 0


class WatchList:
    """Keeps every watch at its place. A node's `expected` changes here alone."""

    def __init__(self, page_size: int) -> None:
        self._page_size = page_size
        self._behind: deque[tuple[RadixNode, Place]] = deque()  # where a node was inserted that some may go on to
        self._changed: dict[RadixWatch, None] = {}
        self._num_ever_expected = 0

    def add(self, root: RadixRoot, tokens: Tokens) -> RadixWatch:
        watch = RadixWatch(root, tokens)
        self._hang(watch, *seek(root, tokens, 0, self._page_size))
        watch.least_len = watch.cached_len
        return watch

    def remove(self, watch: RadixWatch) -> None:
        self._take_off(watch)
        self._changed.pop(watch, None)
        watch.node = None

    def expect(self, watch: RadixWatch, expected: bool, order: int | None) -> None:
        """Count it among those that run soon, or no longer."""
        node = watch.node
        assert node is not None, "expected, but watched no longer"
        if expected and order is None and not watch.expected:
            self._num_ever_expected += 1
            order = self._num_ever_expected
        place = (order or watch.expected) if expected else 0
        if watch.expected and watch.expected != place:
            self._unmark(watch.root, node, [watch.expected])
        if place and watch.expected != place:
            _mark(node, [place])
        watch.expected = place

    def advance(self, budget: int) -> list[RadixWatch]:
        while self._behind and budget > 0:
            node, place = self._behind[0]
            group = (node.watchers or {}).get(place)
            if group and place[1] in node.children:
                watches = list(islice(group, budget))
                for watch in watches:
                    self._go_on(watch, node)
                budget -= len(watches)
            else:  # all have gone on, or cannot any more
                self._behind.popleft()
        changed = list(self._changed)
        self._changed.clear()
        return changed

    def inserted(self, parent: RadixNode, cached_len: int, first_page: bytes) -> None:
        """A node was hung below `parent`, whose path is `cached_len` tokens long."""
        place = cached_len, first_page
        if parent.watchers is not None and place in parent.watchers:
            self._behind.append((parent, place))

    def split(self, front: RadixNode, back: RadixNode, cached_len: int) -> None:
        """`front`, a path of `cached_len` tokens, was split off `back`: it gets those that match no further."""
        moved = {place: group for place, group in (back.watchers or {}).items() if place[0] <= cached_len}
        if not moved:
            return
        assert back.watchers is not None
        for place in moved:
            del back.watchers[place]
        front.watchers, back.watchers = moved, back.watchers or None
        self._rehang([watch for group in moved.values() for watch in group], back, front)

    def shorten(self, node: RadixNode, target: RadixNode) -> None:
        """What lies below the end of `target` is gone from `node`, which is below it or `target` itself."""
        if node.watchers is None:
            return
        cached_len, fallen, kept = path_len(target), dict[RadixWatch, None](), Watchers()
        for place, group in node.watchers.items():
            if place[0] > cached_len:
                fallen.update(group)
            else:
                kept[place] = group
        if not fallen:
            return
        node.watchers = kept or None
        for watch in fallen:
            watch.cached_len = cached_len
            watch.least_len = min(watch.least_len, cached_len)
        if target.watchers is None:
            target.watchers = {}
        # They all matched what is gone, so they all need the same page next.
        target.watchers.setdefault(self._place(next(iter(fallen))), {}).update(fallen)
        self._changed.update(fallen)
        if target is not node:
            self._rehang(fallen, node, target)

    def _rehang(self, watches: Collection[RadixWatch], old: RadixNode, new: RadixNode) -> None:
        """Those of `old` that are filed at `new` now."""
        for watch in watches:
            watch.node = new
        if old.expected and (expected := [watch.expected for watch in watches if watch.expected]):
            _mark(new, expected)
            self._unmark(next(iter(watches)).root, old, expected)

    def _go_on(self, watch: RadixWatch, node: RadixNode) -> None:
        """Its match ends at the end of `node`, which has a child now that it goes on in."""
        found, cached_len = seek(node, watch.tokens, watch.cached_len, self._page_size)
        self._take_off(watch)
        self._hang(watch, found, cached_len)
        self._changed[watch] = None

    def _hang(self, watch: RadixWatch, node: RadixNode, cached_len: int) -> None:
        watch.node, watch.cached_len = node, cached_len
        place = self._place(watch)
        if node.watchers is None:
            node.watchers = {}
        if (group := node.watchers.get(place)) is None:
            node.watchers[place] = {watch: None}
        else:
            group[watch] = None
        if watch.expected:
            _mark(node, [watch.expected])

    def _take_off(self, watch: RadixWatch) -> None:
        node, place = watch.node, self._place(watch)
        assert node is not None, "watched no longer"
        assert node.watchers is not None, f"{node} knows nothing of a watch on it"
        group = node.watchers[place]
        del group[watch]
        if not group:
            del node.watchers[place]
            node.watchers = node.watchers or None
        if watch.expected:
            self._unmark(watch.root, node, [watch.expected])

    @staticmethod
    def _unmark(root: RadixRoot, node: RadixNode, places: Collection[int]) -> None:
        """Those of these places in the order of the expected are not at `node` any more."""
        assert node.expected is not None, f"{node} knows nothing of an expected prompt"
        for place in places:
            del node.expected[bisect_left(node.expected, place)]
        node.expected = node.expected or None
        if node.queued:
            root.queue.expected_later(node)

    def _place(self, watch: RadixWatch) -> Place:
        start = watch.cached_len * TOKEN_BYTES
        return watch.cached_len, bytes(watch.tokens[start : start + self._page_size * TOKEN_BYTES])

    def check_integrity(self, nodes: Iterable[RadixNode]) -> None:
        """AssertionError unless every watch on `nodes` (roots too) is where it says, and they are all expected ones."""
        for node in nodes:
            watches = [watch for group in (node.watchers or {}).values() for watch in group]
            assert node.watchers is None or watches, f"{node}: keeps room for watches that are gone"
            for place, group in (node.watchers or {}).items():
                for watch in group:
                    assert watch.node is node, f"{node}: holds a watch that is on {watch.node}"
                    assert place == self._place(watch), (
                        f"{node}: a watch of {watch.cached_len} tokens is filed under {place}"
                    )
            start, end = path_len(node) - node.length, path_len(node)
            lost = [place for place in node.watchers or () if place[0] == end and place[1] in node.children]
            assert all((node, place) in self._behind for place in lost), f"{node}: nobody will have {lost} go on"
            wrong = [watch.cached_len for watch in watches if not (start < watch.cached_len <= end or end == 0)]
            assert not wrong, f"{node}: watches of {wrong} tokens on a node from {start} to {end}"
            expected = sorted(watch.expected for watch in watches if watch.expected)
            assert (node.expected or []) == expected, f"{node}: {node.expected} are expected, counted {expected}"


def _mark(node: RadixNode, places: Iterable[int]) -> None:
    if node.expected is None:
        node.expected = []
    for place in places:
        insort(node.expected, place)

"""What is seen of the radix trees: a proper picture whatever happens meanwhile, and the right one if nothing does."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minisgl.core.picture import COLUMNS, TreePicture
from minisgl.kvcache import NaivePrefixCache, Namespace, RadixPrefixCache, folding, tree_view
from minisgl.kvcache.base import BasePrefixCache
from minisgl.kvcache.radix_node import RadixNode
from minisgl.kvcache.view import Slices

SPACES = [Namespace(), Namespace("a"), Namespace("b")]
Row = dict[str, Any]


def ids(*tokens: int) -> np.ndarray:
    return np.array(tokens, np.int32)


class Grown:
    """A cache, two tokens a page at most, to which random things happen."""

    def __init__(self, page_size: int = 1) -> None:
        self.cache = RadixPrefixCache(torch.device("cpu"), page_size)
        self.page_size = page_size
        self.locked: list[Any] = []
        self.num_pages = 0

    def insert(self, *tokens: int, space: int = 0) -> None:
        num = len(tokens) // self.page_size
        pages = np.arange(self.num_pages, self.num_pages + num, dtype=np.int32)
        self.num_pages += num
        self.cache.insert_pages(ids(*tokens), pages, SPACES[space])

    def do(self, what: str, tokens: Sequence[int], space: int, number: int) -> None:
        sizes = self.cache.size_info
        if what == "insert":
            self.insert(*tokens, space=space)
        elif what == "match":
            self.cache.match_prefix(ids(*tokens), SPACES[space])
        elif what == "lock":
            handle = self.cache.match_prefix(ids(*tokens), SPACES[space]).cuda_handle
            self.cache.lock_handle(handle)
            self.locked.append(handle)
        elif what == "unlock" and self.locked:
            self.cache.lock_handle(self.locked.pop(number % len(self.locked)), unlock=True)
        elif what == "evict":
            wanted = min(number, sizes.evictable_size // self.page_size)
            self.cache.evict_pages(wanted, trim=bool(number % 2))
        elif what == "purge":
            self.cache.purge(SPACES[space], ids(*tokens[:2]))


def finish(slices: Slices[Any], between: Callable[[], None] = lambda: None) -> Any:
    while True:
        try:
            next(slices)
        except StopIteration as done:
            return done.value
        between()


def picture_of(
    cache: BasePrefixCache, node: int | None = None, max_nodes: int = 1000, head_len: int = 0
) -> TreePicture:
    picture: TreePicture = finish(cache.view.picture(node, max_nodes, head_len))
    check(picture, max_nodes)
    return picture


def rows_of(picture: TreePicture) -> list[Row]:
    columns = picture.columns()
    return [{"id": number} | {name: columns[name][i] for name in COLUMNS} for i, number in enumerate(picture.ids)]


def check(picture: TreePicture, max_nodes: int) -> None:
    """It is a proper tree: connected, in order, and every sum is right."""
    rows = rows_of(picture)
    assert 1 <= len(rows) <= max_nodes
    assert len(set(picture.ids)) == len(rows)
    num_shown: Counter[int] = Counter()
    tokens_shown: Counter[int] = Counter()
    last: dict[int, int] = {}
    for i, row in enumerate(rows):
        parent = row["parent"]
        assert parent < i
        assert min(row.values()) >= -1
        assert row["folded"] >= 0
        assert row["folded_tokens"] >= row["folded"]
        if parent >= 0:
            assert row["tokens"] >= 1
            num_shown[parent] += 1
            tokens_shown[parent] += row["subtree_tokens"]
            assert row["subtree_tokens"] <= last.get(parent, row["subtree_tokens"])
            last[parent] = row["subtree_tokens"]
    for i, row in enumerate(rows):
        assert row["subtree_tokens"] == row["tokens"] + tokens_shown[i] + row["folded_tokens"]
        assert row["subtree_nodes"] >= 1 + num_shown[i] + row["folded"]
    if len(rows) < max_nodes and picture.num_namespaces == sum(row["parent"] < 0 for row in rows):
        assert not any(row["folded"] for row in rows)
        assert picture.num_tokens == sum(row["tokens"] for row in rows)


def counted(node: RadixNode) -> tuple[int, int]:
    """Tokens and nodes of its subtree."""
    below = [counted(child) for child in node.children.values()]
    return node.length + sum(tokens for tokens, _ in below), 1 + sum(nodes for _, nodes in below)


def check_exact(grown: Grown, picture: TreePicture) -> None:
    tree = grown.cache._tree
    sizes = [counted(root) for root in tree.forest.roots()]
    assert picture.num_tokens == sum(tokens for tokens, _ in sizes)
    assert picture.num_nodes == sum(nodes for _, nodes in sizes) - len(sizes)
    assert picture.num_namespaces == len(sizes)
    assert picture.clock == tree.clock
    nodes = [grown.cache.view._ids.find(number) for number in picture.ids]
    for row, node in zip(rows_of(picture), nodes, strict=True):
        assert node is not None
        assert (row["subtree_tokens"], row["subtree_nodes"]) == counted(node)
        assert row["tokens"] == node.length
        if node.parent is not None:
            assert nodes[row["parent"]] is node.parent
            assert (row["locks"], row["age"]) == (node.ref_count, tree.clock - node.last_access)
    shown = set(map(id, nodes))
    hidden = [counted(node) for node in (*tree.forest.roots(), *tree.forest.nodes()) if id(node) not in shown]
    if len(nodes) > 1:
        assert max(hidden, default=(0, 0)) <= min(counted(node) for node in nodes[1:] if node is not None)


@pytest.fixture
def fine_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Something may happen after every node."""
    monkeypatch.setattr(folding, "NODES_A_SLICE", 2)
    monkeypatch.setattr(tree_view, "NODES_A_SLICE", 2)
    monkeypatch.setattr(tree_view, "ROWS_A_SLICE", 1)


TOKENS = st.lists(st.integers(0, 1), max_size=9)
WHATS = st.sampled_from(["insert", "insert", "insert", "match", "match", "lock", "unlock", "evict", "purge"])
HAPPENINGS = st.lists(st.tuples(WHATS, TOKENS, st.integers(0, 2), st.integers(0, 6)), max_size=40)


@pytest.mark.usefixtures("fine_slices")
@settings(deadline=None)
@given(before=HAPPENINGS, meanwhile=HAPPENINGS, page_size=st.sampled_from([1, 2]), max_nodes=st.integers(1, 12))
def test_whatever_happens_meanwhile_the_picture_is_a_proper_tree_and_a_right_one_once_nothing_does(
    before: list[Any], meanwhile: list[Any], page_size: int, max_nodes: int
) -> None:
    grown = Grown(page_size)
    for happening in before:
        grown.do(*happening)
    coming = iter(meanwhile)

    def one_more() -> None:
        for happening in coming:
            grown.do(*happening)
            break

    for number in (None, 1, 2, 3):
        picture = finish(grown.cache.view.picture(number, max_nodes, 2), one_more)
        if picture is not None:
            check(picture, max_nodes)
    grown.cache.check_integrity()
    check_exact(grown, picture_of(grown.cache, max_nodes=max_nodes))


def looked_at(grown: Grown, num_slices: int) -> Slices[TreePicture | None]:
    """A picture that is under way."""
    slices = grown.cache.view.picture(None, 99, 0)
    for _ in range(num_slices):
        next(slices)
    return slices


@pytest.mark.usefixtures("fine_slices")
def test_a_node_that_is_split_before_the_walk_comes_to_it_is_not_lost() -> None:
    grown = Grown()
    grown.insert(9)
    grown.insert(1, 2, 3, 4)
    slices = looked_at(grown, 1)  # both are known, and none but the first was come to
    grown.cache.match_prefix(ids(1, 2, 7))
    picture = finish(slices)
    check(picture, 99)
    assert (picture.num_tokens, picture.num_nodes) == (5, 3)


def test_a_node_that_absorbs_its_parent_behind_the_walk_is_not_lost_and_counts_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grown = Grown()
    for tokens in ((1, 2, 3), (1, 2, 4, 4), (9,)):
        grown.insert(*tokens)
    grown.cache.evict_pages(1)
    monkeypatch.setattr(folding, "NODES_A_SLICE", 1)
    slices = looked_at(grown, 2)  # come to [1 2], whose only child is [4 4] now
    grown.cache.match_prefix(ids(1, 2, 4, 4))
    assert [node.length for node in grown.cache.root_node.children.values()] == [4, 1]
    monkeypatch.setattr(folding, "NODES_A_SLICE", 9)
    picture = finish(slices)
    check(picture, 99)
    assert [row["tokens"] for row in rows_of(picture)] == [0, 2, 2, 1]
    assert picture.num_tokens == 5


def test_many_namespaces_are_looked_at_in_many_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "NODES_A_SLICE", 10)
    cache = RadixPrefixCache(torch.device("cpu"), 1)
    for i in range(100):
        cache.insert_pages(ids(1), ids(i), Namespace(str(i)))
    assert sum(1 for _ in cache.view.picture(None, 1000, 0)) >= 20


def test_of_many_namespaces_only_those_that_are_shown_are_held() -> None:
    grown = Grown()
    for number in range(500):
        grown.cache.insert_pages(ids(1, number), np.arange(2, dtype=np.int32), Namespace(str(number)))
    held: list[int] = []

    def count() -> None:
        held.append(sum(type(each) is folding.Branch for each in gc.get_objects()))

    picture = finish(grown.cache.view.picture(None, 5, 0), count)
    assert (picture.num_namespaces, picture.num_nodes, picture.num_tokens) == (501, 500, 1000)
    assert held
    assert max(held) <= 8


def test_the_largest_subtrees_are_shown_and_the_rest_is_folded_into_their_parents() -> None:
    grown = Grown()
    for tokens in ((1, 2, 3, 4, 5), (1, 2, 3, 6), (1, 2, 7), (8, 8)):
        grown.insert(*tokens)
    picture = picture_of(grown.cache, max_nodes=4, head_len=2)
    assert [row["tokens"] for row in rows_of(picture)] == [0, 2, 1, 2]
    assert [row["parent"] for row in rows_of(picture)] == [-1, 0, 1, 2]
    assert [(row["folded"], row["folded_tokens"]) for row in rows_of(picture)] == [(1, 2), (1, 1), (1, 1), (0, 0)]
    assert (picture.num_nodes, picture.num_tokens, picture.salts) == (6, 9, [""])
    assert picture.head_lens.tolist() == [0, 2, 1, 2]
    assert picture.heads.tolist() == [1, 2, 3, 4, 5]


def test_each_namespace_has_a_root_and_a_number() -> None:
    grown = Grown()
    grown.insert(1, 2, space=1)
    grown.insert(1, 2, 3, 4, space=2)
    picture = picture_of(grown.cache, head_len=1)
    rows = rows_of(picture)
    assert [(row["parent"], row["namespace"], row["subtree_tokens"]) for row in rows] == [
        (-1, 0, 0), (-1, 2, 4), (1, 2, 4), (-1, 1, 2), (3, 1, 2),
    ]  # fmt: skip
    assert picture.salts == ["", "b", "a"]
    assert picture_of(grown.cache, max_nodes=2).num_namespaces == 3


def test_a_node_keeps_its_id_and_is_looked_into_by_it() -> None:
    grown = Grown()
    grown.insert(1, 2, 3, 4)
    grown.insert(1, 2, 5)
    first = picture_of(grown.cache)
    grown.insert(1, 2, 3, 4, 6)
    again = picture_of(grown.cache)
    assert set(first.ids) < set(again.ids)
    middle = again.ids[1]
    below = picture_of(grown.cache, node=middle, head_len=1)
    assert below.ids == again.ids[1:]
    assert below.above == again.ids[:1]
    assert rows_of(below)[0]["parent"] == -1
    assert (below.num_nodes, below.num_tokens, below.num_namespaces, below.salts) == (4, 6, 0, [])
    assert below.head_lens.tolist() == [1, 1, 1, 1]


def test_a_node_that_was_evicted_absorbed_or_purged_is_gone_and_not_kept() -> None:
    grown = Grown()
    grown.insert(1, 2, 3)
    grown.insert(1, 2, 4)
    handle = grown.cache.match_prefix(ids(5, 6)).cuda_handle
    shown = picture_of(grown.cache).ids
    by_head = dict(zip(shown, rows_of(picture_of(grown.cache)), strict=True))
    assert len(by_head) == 4
    grown.cache.evict_pages(1)
    grown.cache.match_prefix(ids(1, 2, 4))  # what is left of the two becomes one
    left = [number for number in shown if finish(grown.cache.view.picture(number, 9, 0)) is not None]
    assert len(left) == 2
    grown.cache.purge()
    assert [number for number in shown if finish(grown.cache.view.picture(number, 9, 0)) is not None] == [1]
    del handle
    gc.collect()
    assert len(grown.cache.view._ids) == 1


def test_who_runs_on_a_node_and_who_would_is_told() -> None:
    grown = Grown()
    grown.insert(1, 2, 3, 4)
    grown.insert(1, 2, 5)
    cache = grown.cache
    handles = {7: cache.match_prefix(ids(1, 2, 3, 4)).cuda_handle, 8: cache.match_prefix(ids(1, 2, 5)).cuda_handle}
    for handle in handles.values():
        cache.lock_handle(handle)
    watches = {9: cache.watch(ids(1, 2, 5, 5)), 10: cache.watch(ids(1, 9)), 11: cache.watch(ids(7))}
    path = cache.view.path(ids(1, 2, 3, 4, 4))
    assert path.matched_tokens == 4
    root, middle, leaf = path.ids
    use = finish(cache.view.use(middle, handles, watches, 1))
    assert (use.path_tokens, use.tokens, use.locks, use.age) == (2, 2, 2, 0)
    assert (use.users, use.waiting, use.tail.tolist()) == ([7, 8], [9, 10], [2])
    use = finish(cache.view.use(leaf, handles, watches, 9))
    assert (use.users, use.waiting, use.tail.tolist()) == ([7], [], [1, 2, 3, 4])
    use = finish(cache.view.use(root, handles, watches, 9))
    assert (use.users, use.waiting, use.locks) == ([7, 8], [9, 10, 11], 0)
    assert finish(cache.view.use(99, handles, watches, 9)) is None


@pytest.mark.usefixtures("fine_slices")
def test_a_node_may_go_while_its_users_are_looked_for() -> None:
    grown = Grown()
    grown.insert(1, 2)
    watches = {uid: grown.cache.watch(ids(1, 2, uid)) for uid in range(5)}
    (leaf,) = grown.cache.view.path(ids(1, 2)).ids[1:]
    slices = grown.cache.view.use(leaf, {}, watches, 0)
    next(slices)
    grown.cache.purge()
    assert finish(slices) is None


def test_where_a_prompt_lies_is_told_without_splitting_or_refreshing_anything() -> None:
    grown = Grown()
    grown.insert(1, 2, 3, 4)
    before = grown.cache._tree.clock
    path = grown.cache.view.path(ids(1, 2, 9))
    assert (len(path.ids), path.matched_tokens) == (2, 2)
    assert grown.cache.view.path(ids(1), SPACES[1]).ids == []
    assert grown.cache._tree.clock == before
    assert picture_of(grown.cache).num_nodes == 1


def test_a_cache_that_keeps_nothing_shows_a_root() -> None:
    cache = NaivePrefixCache(torch.device("cpu"), 4)
    picture = picture_of(cache, head_len=4)
    assert (picture.ids, picture.num_nodes, picture.page_size, picture.salts) == ([1], 0, 4, [""])
    assert finish(cache.view.picture(2, 9, 0)) is None
    assert cache.view.path(ids(1, 2)).matched_tokens == 0
    handle = cache.match_prefix(ids(1)).cuda_handle
    assert finish(cache.view.use(1, {3: handle}, {}, 0)).users == [3]
    assert finish(cache.view.use(2, {3: handle}, {}, 0)) is None

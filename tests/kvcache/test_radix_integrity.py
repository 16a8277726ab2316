"""`check_integrity` names what is wrong: each test breaks one thing by hand."""

import numpy as np
import pytest
import torch

from minisgl.kvcache import Namespace, RadixPrefixCache


@pytest.fixture
def cache():
    """[1 1 2 2] with the leaves [3 3] and [4 4]; two tokens a page."""
    cache = RadixPrefixCache(torch.device("cpu"), page_size=2)
    cache.insert_pages(np.array([1, 1, 2, 2, 3, 3]), np.array([0, 1, 2]))
    cache.insert_pages(np.array([1, 1, 2, 2, 4, 4]), np.array([0, 1, 3]))
    cache.check_integrity()
    return cache


@pytest.fixture
def inner(cache):
    return next(iter(cache.root_node.children.values()))


@pytest.fixture
def leaf(inner):
    return list(inner.children.values())[-1]


def assert_names(cache, fault):
    with pytest.raises(AssertionError, match=fault):
        cache.check_integrity()


def test_sizes_that_drifted(cache):
    cache._evictable_size += 2
    assert_names(cache, r"sizes drifted: the tree has SizeInfo\(evictable_size=8.*counters say .*evictable_size=10")


def test_a_child_locked_more_often_than_its_parent(cache, leaf):
    leaf.ref_count = 1
    assert_names(cache, r"node\(pages=\[3\], ref_count=1, last_access=2\): locked more often than its parent")


def test_a_negative_lock_count(cache, inner):
    inner.ref_count = -1
    assert_names(cache, "negative ref_count")


def test_a_run_that_is_not_whole_pages(cache, leaf):
    leaf.token_bytes += b"\0\0\0\0"
    assert_names(cache, "3 tokens are not 1 pages of 2")


def test_a_node_without_pages(cache, leaf):
    leaf.token_bytes, leaf.pages = b"", leaf.pages[:0]
    assert_names(cache, "filed under another page than its first|no pages")


def test_a_child_under_a_wrong_key(cache, inner):
    inner.children[b"\0" * 8] = inner.children.popitem()[1]
    assert_names(cache, "filed under another page than its first")


def test_a_wrong_parent_pointer(cache, leaf):
    leaf.parent = cache.root_node
    assert_names(cache, "its parent pointer leads to")


def test_a_page_that_two_nodes_hold(cache, leaf):
    leaf.pages[0] = 1
    assert_names(cache, r"pages held more than once: \[1\]")


def test_a_negative_page_number(cache, leaf):
    leaf.pages[0] = -1
    assert_names(cache, r"negative page numbers: \[-1\]")


def test_a_visit_in_the_future(cache, inner):
    inner.last_access = 99
    assert_names(cache, "visited in the future, the clock is at 2")


def test_a_child_visited_after_its_parent(cache, inner):
    inner.last_access = 1
    assert_names(cache, "visited later than its parent")


def test_an_unlocked_leaf_that_is_not_queued(cache, leaf):
    cache._queue.clear()
    assert_names(cache, "an unlocked leaf that is not queued for eviction")
    leaf.queued = True
    assert_names(cache, "queued=True, its entry says otherwise")


def test_an_empty_namespace_that_was_kept(cache):
    cache._forest.plant(Namespace("a"))
    assert_names(cache, "the empty namespace .*'a'.* was kept")


def test_a_flushed_node_that_nobody_reads(cache, inner):
    cache.lock_handle(cache.match_prefix(inner._key).cuda_handle)
    cache.flush()
    inner.ref_count = 0
    assert_names(cache, "flushed, locked by nobody and still there")


def test_a_leaf_that_is_queued_twice(cache, leaf):
    leaf.queued = False
    leaf.last_access = 3
    cache._queue.push(leaf)
    leaf.last_access = 2
    assert_names(cache, "a node is queued for eviction twice")


def test_two_leaves_of_the_same_time(cache, leaf):
    leaf.queued = False
    with pytest.raises(AssertionError, match="are leaves of the same time"):
        cache._queue.push(leaf)


def test_queue_times_without_a_node(cache):
    cache._queue._times.append(7)
    assert_names(cache, "the times in the eviction queue are not those of its nodes")


def test_a_queue_entry_later_than_its_node(cache, inner):
    oldest = next(iter(inner.children.values()))
    oldest.last_access -= 1
    assert_names(cache, "later than its last access|visited in the future")


def test_a_queued_node_that_is_not_in_the_tree(cache, leaf):
    cache._evictable_size -= leaf.length
    leaf.detach()
    assert_names(cache, "queued for eviction, but not in the tree")

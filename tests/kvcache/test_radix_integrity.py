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
    cache._tree.evictable_size += 2
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
    leaf.token_bytes = leaf.page_bytes = b""
    assert_names(cache, "filed under another page than its first|no pages")


def test_a_child_under_a_wrong_key(cache, inner):
    inner.children[b"\0" * 8] = inner.children.popitem()[1]
    assert_names(cache, "filed under another page than its first")


def test_a_wrong_parent_pointer(cache, leaf):
    leaf.parent = cache.root_node
    assert_names(cache, "its parent pointer leads to")


def test_a_page_that_two_nodes_hold(cache, leaf):
    leaf.page_bytes = np.int32(1).tobytes()
    assert_names(cache, r"pages held more than once: \[1\]")


def test_a_negative_page_number(cache, leaf):
    leaf.page_bytes = np.int32(-1).tobytes()
    assert_names(cache, r"negative page numbers: \[-1\]")


def test_a_visit_in_the_future(cache, inner):
    inner.last_access = 99
    assert_names(cache, "visited in the future, the clock is at 2")


def test_a_child_visited_after_its_parent(cache, inner):
    inner.last_access = 1
    assert_names(cache, "visited later than its parent")


def test_an_unlocked_leaf_that_is_not_queued(cache):
    cache.root_node.queue.clear()
    assert_names(cache, "not filed|not queued")


def test_an_empty_namespace_that_was_kept(cache):
    cache._tree.forest.plant(Namespace("a"))
    assert_names(cache, "the empty namespace .*'a'.* was kept")


def test_a_purged_node_that_nobody_reads(cache, inner):
    cache.lock_handle(cache.match_prefix(inner._key).cuda_handle)
    cache.purge()
    inner.ref_count = 0
    assert_names(cache, "purged, locked by nobody and still there")


def test_a_purged_node_that_can_still_be_matched(cache, leaf):
    leaf.dead = True
    assert_names(cache, "purged, but it can still be matched|not filed")


def test_a_purged_node_that_leads_nowhere(cache, inner):
    cache.lock_handle(cache.match_prefix(inner._key).cuda_handle)
    cache.purge()
    inner.parent = None
    assert_names(cache, "locked, but it leads nowhere")


def test_a_node_that_is_expected_by_nobody(cache, leaf):
    leaf.expected = [1]
    assert_names(cache, r"\[1\] are expected, counted \[\]")


def test_a_watch_that_is_not_where_it_says(cache, leaf, inner):
    watch = cache.watch(np.array([1, 1, 2, 2, 4, 4]))
    assert watch.node is leaf
    watch.node = inner
    assert_names(cache, "holds a watch that is on")


def test_a_watch_of_another_length_than_its_place(cache, leaf):
    watch = cache.watch(np.array([1, 1, 2, 2, 4, 4]))
    watch.cached_len = 4
    assert_names(cache, "a watch of 4 tokens is filed under")

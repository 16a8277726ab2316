"""Literal examples of the radix cache; R1, R5 and R7 are faults reported of other servers."""

import gc
import weakref

import numpy as np
import pytest
import torch

from minisgl.kernel.torch_ops import fast_compare_key
from minisgl.kvcache.radix_cache import RadixPrefixCache
from minisgl.kvcache.radix_node import RadixNode


def make_cache(page_size=1):
    return RadixPrefixCache(torch.device("cpu"), page_size)


def t(*xs):
    return torch.tensor(xs, dtype=torch.int32)


def ids(*xs):
    return np.array(xs, np.int32)


def match(cache, tokens):
    return cache.match_prefix(tokens).cuda_handle


def tree_of(node):
    """{first token: (tokens, slots, ref_count, children)}, as nested dicts."""
    return {
        int(child._key[0]): (child._key.tolist(), child.value.tolist(), child.ref_count, tree_of(child))
        for child in node.children.values()
    }


def test_prefixes_share_nodes_and_a_match_splits_the_node_in_which_it_ends():
    cache = make_cache()
    cache.insert_prefix(t(1, 2, 3, 4), t(10, 11, 12, 13))
    cached_len, handle = cache.insert_prefix(t(1, 2, 5, 6), t(10, 11, 20, 21))
    assert (cached_len, handle.cached_len) == (2, 4)
    assert handle.get_matched_indices().tolist() == [10, 11, 20, 21]
    handle = match(cache, t(1, 2, 3, 9))
    assert (handle.cached_len, handle.get_matched_indices().tolist()) == (3, [10, 11, 12])
    assert (handle.node.length, handle.node.parent.parent) == (1, cache.root_node)
    four = ([4], [13], 0, {})
    assert tree_of(cache.root_node) == {
        1: ([1, 2], [10, 11], 0, {3: ([3], [12], 0, {4: four}), 5: ([5, 6], [20, 21], 0, {})})
    }
    assert cache.size_info == (6, 0)
    cache.check_integrity()


def test_numpy_and_torch_int32_and_int64_inputs_are_the_same():
    cache = make_cache(2)
    cache.insert_prefix(torch.tensor([1, 2, 3, 4]), torch.tensor([6, 7, 2, 3]))
    for tokens in (ids(1, 2, 3, 4), t(1, 2, 3, 4), np.array([1, 2, 3, 4]), np.array([1, 0, 2, 0, 3, 0, 4, 0])[::2]):
        handle = match(cache, tokens)
        assert handle.get_matched_pages().tolist() == [3, 1]
        assert handle.get_matched_pages().dtype == np.int32
        assert handle.get_matched_indices().tolist() == [6, 7, 2, 3]
        assert handle.get_matched_indices().dtype == torch.int32


def test_what_is_cached_already_keeps_its_own_pages():
    cache = make_cache(2)
    cache.insert_pages(ids(1, 1, 2, 2), ids(5, 6))
    inserted = cache.insert_pages(ids(1, 1, 2, 2, 3, 3), ids(7, 8, 9))
    assert inserted.cached_len == 4
    assert inserted.handle.get_matched_pages().tolist() == [5, 6, 9]
    assert sorted(cache.cached_pages().tolist()) == [5, 6, 9]
    again = cache.insert_pages(ids(1, 1), ids(10))
    assert (again.cached_len, again.handle.get_matched_pages().tolist()) == (2, [5])


def test_a_handle_stays_right_when_its_node_is_split_later():
    cache = make_cache()
    handle = cache.insert_pages(ids(1, 2, 3, 4, 5), ids(10, 11, 12, 13, 14)).handle
    cache.lock_handle(handle)
    match(cache, ids(1, 2, 9))
    match(cache, ids(1, 2, 3, 4))
    assert handle.get_matched_pages().tolist() == [10, 11, 12, 13, 14]
    assert cache.size_info == (0, 5)
    cache.check_integrity()
    cache.lock_handle(handle, unlock=True)
    assert cache.size_info == (5, 0)
    assert cache.evict(5).tolist() == [14, 12, 13, 10, 11]


def test_the_empty_match_can_be_read_locked_and_unlocked():
    cache = make_cache(4)
    cache.insert_pages(ids(1, 2, 3, 4), ids(0))
    for tokens in (ids(), ids(1, 2, 3), ids(2, 2, 2, 2, 2), t()):
        handle = match(cache, tokens)
        assert (handle.cached_len, handle.node) == (0, cache.root_node)
        assert handle.get_matched_pages().tolist() == handle.get_matched_indices().tolist() == []
        cache.lock_handle(handle)
        assert cache.size_info == (4, 0)
        cache.lock_handle(handle, unlock=True)
    assert cache.insert_pages(ids(1, 2, 3), ids()).handle.node is cache.root_node


def test_r1_a_locked_match_keeps_its_own_node_and_the_way_to_it():
    cache = make_cache()
    cache.insert_pages(np.arange(1, 9), np.arange(8))
    cache.insert_pages(np.arange(1, 13), np.arange(12))
    handle = match(cache, np.arange(1, 13))
    cache.lock_handle(handle)
    assert cache.size_info == (0, 12)
    with pytest.raises(AssertionError, match="cannot evict 12 tokens: 0 evictable, 12 protected"):
        cache.evict(12)
    assert handle.get_matched_pages().tolist() == list(range(12))
    cache.lock_handle(handle, unlock=True)
    assert sorted(cache.evict(12).tolist()) == list(range(12))
    assert cache.size_info == (0, 0)


def test_r1_a_lock_on_an_inner_node_frees_what_is_below_it():
    cache = make_cache()
    cache.insert_pages(np.arange(1, 13), np.arange(12))
    handle = match(cache, np.arange(1, 6))
    cache.lock_handle(handle)
    assert cache.size_info == (7, 5)
    assert cache.evict(7).tolist() == list(range(5, 12))
    assert handle.get_matched_pages().tolist() == list(range(5))
    cache.check_integrity()


def test_r1_of_two_locks_one_remains():
    cache = make_cache()
    handle = cache.insert_pages(ids(1, 2, 3), ids(0, 1, 2)).handle
    cache.lock_handle(handle)
    cache.lock_handle(match(cache, ids(1, 2, 3)))
    cache.lock_handle(handle, unlock=True)
    assert cache.size_info == (0, 3)
    cache.lock_handle(handle, unlock=True)
    assert cache.size_info == (3, 0)
    with pytest.raises(AssertionError, match="unlocked more often than it was locked"):
        cache.lock_handle(handle, unlock=True)
    assert cache.size_info == (3, 0)
    cache.check_integrity()


@pytest.mark.parametrize("length", [0, 1, 15, 16, 17, 31, 32, 63])
def test_r5_only_whole_pages_are_cached(length):
    cache = make_cache(16)
    tokens = np.arange(length)
    cached_len, handle = cache.insert_prefix(tokens, 32 + tokens)
    assert (cached_len, handle.cached_len) == (0, length // 16 * 16)
    assert handle.get_matched_pages().tolist() == list(range(2, 2 + length // 16))
    assert handle.get_matched_indices().tolist() == list(range(32, 32 + length // 16 * 16))
    for shorter in range(length + 1):
        assert match(cache, tokens[:shorter]).cached_len == shorter // 16 * 16
        cache.check_integrity()


@pytest.mark.parametrize("differs_at", [5, 15, 16, 17, 20])
def test_r5_a_split_falls_on_a_page_border(differs_at):
    cache = make_cache(16)
    first, second = np.arange(63), np.arange(63)
    second[differs_at] = 999
    cache.insert_pages(first, ids(0, 1, 2))
    shared = differs_at // 16
    assert match(cache, second[:62]).cached_len == shared * 16
    assert cache.insert_pages(second, ids(3, 4, 5)).cached_len == shared * 16
    assert match(cache, second).get_matched_pages().tolist() == [0, 1, 2][:shared] + [3, 4, 5][shared:]
    assert match(cache, first).get_matched_pages().tolist() == [0, 1, 2]
    assert cache.size_info == ((6 - shared) * 16, 0)
    cache.check_integrity()


def test_r7_a_chain_of_5000_nodes_is_read_and_evicted_without_recursion():
    cache = make_cache()
    tokens = np.zeros(5000)
    cache.insert_pages(tokens, np.arange(5000))
    for length in range(4999, 0, -1):  # each splits the first node once more and hangs a branch on it
        cache.insert_pages(np.append(tokens[:length], 1), np.append(np.arange(length), 5000 + length))
    handle = match(cache, tokens)
    assert handle.get_matched_pages().tolist() == list(range(5000))
    cache.check_integrity()
    assert sorted(cache.evict(9999).tolist()) == [*range(5000), *range(5001, 10_000)]
    assert cache.root_node.children == {}


def test_leaves_are_evicted_whole_and_in_order_of_their_last_visit():
    cache = make_cache(2)
    for first, page in ((1, 0), (2, 2), (3, 4)):
        cache.insert_pages(ids(first, first, 9, 9), ids(page, page + 1))
    match(cache, ids(1, 1, 9, 9))
    assert cache.evict(1).tolist() == [4, 5, 6, 7]
    assert cache.evict_pages(3).tolist() == [4, 5, 0, 1]
    assert cache.evict(0).tolist() == cache.evict_pages(0).tolist() == []


def test_of_a_split_node_the_matched_half_is_refreshed_and_the_other_keeps_its_time():
    cache = make_cache()
    cache.insert_pages(ids(1, 2), ids(0, 1))
    cache.insert_pages(ids(5, 6), ids(2, 3))
    match(cache, ids(1, 7))
    assert [cache.evict_pages(1).tolist() for _ in range(3)] == [[1], [2, 3], [0]]


def test_evict_more_than_is_evictable_is_refused_before_anything_is_freed():
    cache = make_cache(4)
    cache.insert_pages(np.arange(8), ids(0, 1))
    with pytest.raises(AssertionError, match="cannot evict 12 tokens: 8 evictable, 0 protected"):
        cache.evict(9)
    assert cache.size_info == (8, 0)
    assert sorted(cache.evict(5).tolist()) == list(range(8))


def test_the_tree_owns_its_memory():
    cache = make_cache()
    tokens, pages = np.arange(100, dtype=np.int32), np.arange(100, dtype=np.int32)
    alive = [weakref.ref(tokens), weakref.ref(pages)]
    handle = cache.insert_pages(tokens, pages).handle
    handle.get_matched_pages()[:] = -1
    handle.node.value.zero_()
    handle.node._key.zero_()
    tokens[:], pages[:] = 7, 7
    assert match(cache, np.arange(100)).get_matched_pages().tolist() == list(range(100))
    match(cache, np.arange(50))
    del tokens, pages
    gc.collect()
    assert [ref() for ref in alive] == [None, None]
    assert all(type(node.page_bytes) is bytes for node in (handle.node, handle.node.parent))


def test_equal_runs_evict_equally():
    def run():
        rng = np.random.default_rng(3)
        cache, freed = make_cache(), []
        for i in range(300):
            cache.insert_pages(rng.integers(0, 2, 12), np.arange(12 * i, 12 * i + 12))
            freed += cache.evict_pages(int(rng.integers(cache.size_info.evictable_size // 2 + 1))).tolist()
        return freed

    assert run() == run()


def test_reset_empties_the_cache_unless_something_is_locked():
    cache = make_cache()
    handle = cache.insert_pages(ids(1, 2, 3), ids(0, 1, 2)).handle
    empty = match(cache, ids(9))
    cache.lock_handle(handle)
    with pytest.raises(AssertionError, match="3 tokens are locked"):
        cache.reset()
    cache.lock_handle(handle, unlock=True)
    cache.reset()
    cache.check_integrity()
    assert cache.size_info == (0, 0)
    assert match(cache, ids(1, 2, 3)).cached_len == 0
    cache.insert_pages(ids(1, 2), ids(5, 6))
    cache.lock_handle(empty)
    assert cache.evict(2).tolist() == [5, 6]


def test_a_handle_of_an_evicted_prefix_cannot_be_used():
    cache = make_cache()
    handle = cache.insert_pages(ids(1, 2, 3), ids(0, 1, 2)).handle
    cache.evict(3)
    with pytest.raises(AssertionError, match="evicted"):
        handle.get_matched_pages()
    with pytest.raises(AssertionError, match="evicted"):
        cache.lock_handle(handle)


def test_slots_that_are_no_pages_are_refused():
    cache = make_cache(4)
    with pytest.raises(ValueError, match="slot 11 at position 5 does not continue a page of page_size=4"):
        cache.insert_prefix(t(1, 2, 3, 4, 5, 6, 7, 8), t(4, 5, 6, 7, 8, 11, 10, 9))
    with pytest.raises(AssertionError, match="8 tokens do not fill 1 pages"):
        cache.insert_pages(np.arange(8), ids(0))
    assert cache.size_info == (0, 0)


@pytest.mark.parametrize("length", [1, 2, 3, 40, 5000])
def test_the_first_difference_is_where_fast_compare_key_finds_it(length):
    rng = np.random.default_rng(length)
    for _ in range(50):
        mine = rng.integers(0, 2**31, length, dtype=np.int32)
        theirs = mine[: rng.integers(1, length + 1)].copy()
        if rng.random() < 0.7:
            theirs[rng.integers(len(theirs))] ^= 1 << int(rng.integers(31))
        node = RadixNode(mine.tobytes(), np.arange(length, dtype=np.int32), last_access=1)
        expected = fast_compare_key(torch.from_numpy(mine), torch.from_numpy(theirs))
        assert node.count_matching(theirs.tobytes()) == node.count_matching(theirs.data.cast("B")) == expected
        assert node.token_bytes.startswith(theirs.tobytes()) == (expected == len(theirs))


def test_a_node_absorbs_its_parent_when_nothing_tells_them_apart_any_more():
    cache = make_cache()
    cache.insert_pages(ids(1, 2, 3, 4), ids(10, 11, 12, 13))
    half = match(cache, ids(1, 2, 9))
    cache.lock_handle(half)
    match(cache, ids(1, 2, 3, 4))
    assert tree_of(cache.root_node) == {1: ([1, 2], [10, 11], 1, {3: ([3, 4], [12, 13], 0, {})})}
    cache.lock_handle(half, unlock=True)
    match(cache, ids(1, 2, 3, 4))
    assert tree_of(cache.root_node) == {1: ([1, 2, 3, 4], [10, 11, 12, 13], 0, {})}
    cache.check_integrity()


def test_a_handle_stays_right_when_its_node_is_absorbed_before_it_is_locked():
    cache = make_cache(2)
    cache.insert_pages(np.arange(8), ids(0, 1, 2, 3))
    half = match(cache, ids(0, 1, 2, 3, 9, 9))
    match(cache, np.arange(8))
    assert half.get_matched_pages().tolist() == [0, 1]
    assert half.get_matched_indices().tolist() == [0, 1, 2, 3]
    cache.lock_handle(half)
    assert cache.size_info == (4, 4)
    assert sorted(cache.evict(4).tolist()) == [4, 5, 6, 7]
    assert half.get_matched_pages().tolist() == [0, 1]
    cache.check_integrity()


def test_trimming_frees_exactly_what_is_asked_for_from_the_end_of_the_last_leaf():
    cache = make_cache(2)
    cache.insert_pages(np.arange(8), ids(0, 1, 2, 3))
    cache.insert_pages(np.arange(10, 18), ids(4, 5, 6, 7))
    assert cache.evict_pages(1, trim=True).tolist() == [3]
    assert cache.evict_pages(4, trim=True).tolist() == [0, 1, 2, 7]
    assert match(cache, np.arange(10, 18)).get_matched_pages().tolist() == [4, 5, 6]
    assert cache.size_info == (6, 0)
    cache.check_integrity()


def test_a_trimmed_prefix_cannot_be_read_by_an_old_handle():
    cache = make_cache()
    handle = cache.insert_pages(ids(1, 2, 3), ids(0, 1, 2)).handle
    cache.evict_pages(1, trim=True)
    with pytest.raises(AssertionError, match="evicted"):
        handle.get_matched_pages()


def test_a_probe_tells_what_a_match_would_find_and_changes_nothing():
    cache = make_cache(2)
    cache.insert_pages(ids(1, 1, 2, 2), ids(0, 1))
    cache.insert_pages(ids(5, 5, 6, 6), ids(2, 3))
    before = tree_of(cache.root_node)
    probed = [cache.probe(tokens) for tokens in (ids(1, 1, 9, 9), ids(1, 1, 2, 2, 3, 3), ids(1, 1, 2), ids(1), ids())]
    assert probed == [2, 4, 2, 0, 0]
    assert tree_of(cache.root_node) == before
    assert cache.evict_pages(1).tolist() == [0, 1]

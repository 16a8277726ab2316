"""Purges of the radix cache: what is matched no more, and when its pages come back."""

import gc
import weakref

import numpy as np
import pytest
import torch

from minisgl.kvcache import PUBLIC, Namespace, RadixPrefixCache
from minisgl.kvcache.radix_node import RadixNode

SALT = Namespace("a")


def ids(*xs):
    return np.array(xs, np.int32)


def make_cache(page_size, *prompts, namespace=PUBLIC):
    cache = RadixPrefixCache(torch.device("cpu"), page_size)
    for i, prompt in enumerate(prompts):
        first = 100 * i
        cache.insert_pages(np.array(prompt), np.arange(first, first + len(prompt) // page_size), namespace)
    return cache


def test_a_purged_prefix_goes_with_all_that_begins_with_it_and_what_led_only_there():
    cache = make_cache(1, (1, 2, 3, 4), (1, 2, 3, 5), (1, 7))
    assert sorted(cache.purge(PUBLIC, ids(1, 2, 3))) == [1, 2, 3, 103]
    assert cache.probe(ids(1, 2, 3, 4)) == 1
    assert sorted(cache.purge(PUBLIC, ids(1, 7))) == [0, 201]
    assert cache.size_info == (0, 0)
    cache.check_integrity()


@pytest.mark.parametrize(("prefix", "left"), [((1,), 0), ((1, 1, 2), 0), ((1, 1, 2, 2, 4), 4), ((2,), 6)])
def test_a_prefix_that_ends_within_a_page_takes_that_page_too(prefix, left):
    cache = make_cache(2, (1, 1, 2, 2, 3, 3), (1, 1, 2, 2, 4, 4))
    cache.purge(None, ids(*prefix))
    assert cache.probe(ids(1, 1, 2, 2, 4, 4)) == left
    cache.check_integrity()


def test_several_pages_may_begin_with_the_end_of_a_purged_prefix():
    cache = make_cache(2, (1, 1, 2, 2), (1, 1, 2, 3), (1, 1, 4, 4))
    assert sorted(cache.purge(None, ids(1, 1, 2))) == [1, 101]
    cache.check_integrity()


def test_one_namespace_can_be_purged_and_the_others_keep_theirs():
    cache = make_cache(1, (1, 2))
    cache.insert_pages(ids(1, 2), ids(7, 8), SALT)
    assert sorted(cache.purge(SALT)) == [7, 8]
    assert cache.purge(Namespace("b")).tolist() == []
    assert (cache.probe(ids(1, 2)), cache.probe(ids(1, 2), SALT)) == (2, 0)
    cache.check_integrity()


def test_what_is_locked_is_matched_no_more_and_dies_with_its_last_reader():
    cache = make_cache(1, (1, 2, 3, 4))
    above, below = (cache.match_prefix(ids(1, 2, 3, 4)[:n]).cuda_handle for n in (2, 4))
    for handle in (above, below):
        cache.lock_handle(handle)
    assert cache.purge(PUBLIC, ids(1, 2, 3)).tolist() == []
    assert cache.probe(ids(1, 2, 3, 4)) == 2
    assert cache.size_info == (0, 4)
    cache.insert_pages(ids(1, 2, 3, 4), ids(0, 1, 12, 13))
    cache.check_integrity()
    assert below.get_matched_pages().tolist() == [0, 1, 2, 3]
    cache.lock_handle(below, unlock=True)
    assert sorted(cache.reclaim()) == [2, 3]
    cache.lock_handle(above, unlock=True)
    assert cache.size_info == (4, 0)
    cache.check_integrity()


def test_the_way_down_to_a_dead_node_becomes_a_leaf_when_its_last_lock_goes():
    cache = make_cache(1, (1, 2, 3, 4))
    above, below = (cache.match_prefix(ids(1, 2, 3, 4)[:n]).cuda_handle for n in (2, 4))
    for handle in (above, below):
        cache.lock_handle(handle)
    cache.purge(PUBLIC, ids(1, 2, 3))
    cache.lock_handle(above, unlock=True)
    cache.lock_handle(below, unlock=True)
    assert sorted(cache.evict_pages(2)) == [0, 1]
    cache.check_integrity()


def test_a_flush_lets_go_of_the_memory_of_what_it_frees():
    cache = make_cache(1, (1, 2))
    node = RadixNode(b"abcd", b"efgh", last_access=9)
    node.hang(cache.root_node, b"abcd")
    cache.root_node.queue.push(node)
    alive = weakref.ref(node)
    cache._tree.evictable_size += 1
    cache.purge()
    del node
    gc.collect()
    assert alive() is None

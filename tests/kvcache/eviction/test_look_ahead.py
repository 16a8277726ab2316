"""Leaves that waiting requests are about to hit go last, whatever the policy."""

import numpy as np
import pytest
import torch
from support.grove import Grove

from minisgl.kvcache import Namespace, RadixPrefixCache
from minisgl.kvcache.eviction import EVICTION_POLICIES

every_policy = pytest.mark.parametrize("policy", EVICTION_POLICIES.names)


def plant(policy, num_leaves=4):
    """A grove with leaves of one token each, and its leaves in plain order."""
    grove = Grove(policy)
    leaves = [grove.insert([token]) for token in range(num_leaves)]
    return grove, leaves[::-1] if policy == "mru" else leaves


def evict_all(grove):
    order = []
    while (leaf := grove.queue.first()) is not None:
        order.append(leaf)
        grove.evict()
        grove.check()
    return order


@every_policy
def test_an_expected_leaf_goes_after_all_others(policy):
    grove, (a, b, c, d) = plant(policy)
    grove.expect(a)
    grove.expect(c)
    assert evict_all(grove) == [b, d, c, a]


@every_policy
def test_when_only_expected_leaves_are_left_the_one_that_is_needed_last_goes_first(policy):
    grove, (a, b, c, d) = plant(policy)
    for leaf in (c, a, d, b, c):
        grove.expect(leaf)
    assert grove.queue.first() is b
    grove.unexpect(c)  # who comes first is served; another one waits for the same leaf, after all others
    assert evict_all(grove) == [c, b, d, a]


@every_policy
def test_a_leaf_that_is_not_expected_any_more_comes_back_to_its_place(policy):
    grove, (a, b, c, d) = plant(policy)
    grove.expect(b)
    grove.expect(b)
    assert grove.queue.first() is a
    grove.evict()
    assert grove.queue.first() is c
    grove.unexpect(b)
    assert grove.queue.first() is c
    grove.unexpect(b)
    assert evict_all(grove) == [b, c, d]


@every_policy
def test_a_spared_leaf_that_gets_locked_does_not_go(policy):
    grove, (a, b, *_) = plant(policy, num_leaves=2)
    grove.expect(a)
    assert grove.queue.first() is b
    grove.lock(a)
    grove.evict()
    assert grove.queue.first() is None
    grove.unlock(a)
    assert evict_all(grove) == [a]


def test_arc_takes_an_unexpected_leaf_of_the_other_list_before_an_expected_one():
    grove, (a, b, *_) = plant("arc", num_leaves=2)
    grove.match([1])
    grove.expect(a)
    assert evict_all(grove) == [b, a]


@every_policy
def test_that_a_leaf_is_expected_does_not_change_how_urgently_its_namespace_must_give_one(policy):
    grove, (a, *_) = plant(policy)
    urgency = grove.queue.order_key()
    grove.expect(a)
    grove.queue.first()
    assert grove.queue.order_key() == urgency


@every_policy
def test_a_leaf_that_goes_in_the_stead_of_a_spared_one_pays_for_it(policy):
    plain, _ = plant(policy)
    sparing, (a, b, *_) = plant(policy)
    sparing.expect(a)
    sparing.expect(b)
    for _ in range(4):
        assert sparing.queue.order_key() == plain.queue.order_key()
        plain.evict()
        sparing.evict()
    assert sparing.queue.order_key() is None


def test_arc_passes_the_place_on_from_one_list_to_the_other():
    plain, sparing = (plant("arc", num_leaves=4)[0] for _ in range(2))
    for grove in (plain, sparing):
        for token in (1, 2, 3):
            grove.match([token])
    sparing.expect(next(iter(sparing.root.children.values())))
    for _ in range(4):
        assert sparing.queue.order_key() == plain.queue.order_key()
        plain.evict()
        sparing.evict()
    assert sparing.queue.order_key() is None


TENANTS = [Namespace("a"), Namespace("b")]


def evictions_by_tenant(num_expected):
    """Whose leaves go when both have inserted by turns and the first waits for its own oldest ones."""
    cache = RadixPrefixCache(torch.device("cpu"), 1)
    for i in range(20):
        cache.insert_pages(np.array([i, i]), np.array([2 * i, 2 * i + 1]), TENANTS[i % 2])
    for i in range(num_expected):
        cache.expect(cache.watch(np.array([2 * i, 2 * i, 7]), TENANTS[0]), True)
    return [int(cache.evict_pages(2)[0]) // 2 % 2 for _ in range(20)]


@pytest.mark.parametrize("num_expected", [1, 4, 10])
def test_what_one_tenant_waits_for_does_not_change_what_another_keeps(num_expected):
    assert evictions_by_tenant(num_expected) == evictions_by_tenant(0)


def test_a_spared_leaf_that_is_visited_is_as_urgent_as_any_visited_now():
    grove, (a, b, *_) = plant("lru", num_leaves=2)
    grove.expect(a)
    grove.queue.first()
    grove.match([0])
    assert grove.queue.order_key() == b.last_access


def test_a_spared_leaf_that_is_locked_does_not_make_its_namespace_give():
    grove, (a, *_) = plant("lru", num_leaves=1)
    grove.expect(a)
    grove.queue.first()
    grove.lock(a)
    assert grove.queue.order_key() is None


def test_the_part_of_a_leaf_that_an_expected_prompt_will_not_hit_is_not_spared():
    cache = RadixPrefixCache(torch.device("cpu"), 1)
    cache.insert_pages(np.array([1, 2, 3, 4]), np.array([1, 2, 3, 4]))
    cache.insert_pages(np.array([5]), np.array([5]))
    cache.expect(cache.watch(np.array([1, 2, 9])), True)
    assert [sorted(cache.evict_pages(n).tolist()) for n in (2, 1, 2)] == [[3, 4], [5], [1, 2]]
    cache.check_integrity()


def test_a_prompt_that_becomes_expected_before_its_prefix_is_cached_is_spared_that_prefix_alone():
    cache = RadixPrefixCache(torch.device("cpu"), 1)
    cache.expect(cache.watch(np.array([1, 2, 9])), True)
    cache.insert_pages(np.array([1, 2, 3, 4]), np.array([1, 2, 3, 4]))
    cache.insert_pages(np.array([5]), np.array([5]))
    cache.advance_watches(10)
    assert [sorted(cache.evict_pages(n).tolist()) for n in (2, 1, 2)] == [[3, 4], [5], [1, 2]]
    cache.check_integrity()

"""`check_integrity` of an eviction queue names what is wrong: each test breaks one thing by hand."""

import pytest
from support.grove import Grove, below

from minisgl.kvcache.eviction import EVICTION_POLICIES


def grow(policy):
    """Three leaves in the policy's order, the first of which is set aside for a waiting request."""
    grove = Grove(policy)
    leaves = [grove.insert([token, token]) for token in range(4)]
    leaves = leaves[2::-1] if policy == "mru" else leaves[1:]
    assert grove.evict() == ((3, 3) if policy == "mru" else (0, 0))
    grove.expect(leaves[0])
    grove.check()
    return grove, leaves


def assert_names(grove, fault):
    with pytest.raises(AssertionError, match=fault):
        grove.queue.check_integrity(list(below(grove.root)))


@pytest.mark.parametrize("policy", EVICTION_POLICIES.names)
def test_an_unlocked_leaf_without_an_entry(policy):
    grove, leaves = grow(policy)
    leaves[1].queued = 0
    assert_names(grove, "unlocked leaves that are not queued for eviction")


@pytest.mark.parametrize("policy", EVICTION_POLICIES.names)
def test_an_entry_of_a_node_that_is_not_in_the_tree(policy):
    grove, leaves = grow(policy)
    leaves[1].detach()
    assert_names(grove, "queued for eviction, but not in the tree")


@pytest.mark.parametrize("policy", ["lru", "lfu", "slru", "priority", "arc"])
def test_an_entry_later_than_its_node(policy):
    grove, leaves = grow(policy)
    leaves[1].last_access = 0
    assert_names(grove, "filed at .*, later than its key")


@pytest.mark.parametrize("policy", EVICTION_POLICIES.names)
def test_a_leaf_set_aside_for_nobody(policy):
    grove, leaves = grow(policy)
    leaves[0].expected = None
    assert_names(grove, "is set aside for a waiting request that does not exist")


def test_a_leaf_set_aside_without_a_place():
    grove, leaves = grow("lru")
    grove.queue._places.leave(leaves[0])
    assert_names(grove, "is set aside and has no place")


def test_a_leaf_in_another_heap_than_it_says():
    grove, leaves = grow("lru")
    leaves[0].queued = 1
    assert_names(grove, "queued=1, but that heap has no entry for it")


def test_heap_keys_without_a_node():
    grove, _ = grow("lru")
    grove.queue._heap._keys.append(99)
    assert_names(grove, "the keys of an eviction heap are not those of its nodes")


def test_two_leaves_of_the_same_key():
    grove, leaves = grow("lru")
    leaves[1].last_access = leaves[2].last_access
    leaves[1].queued = 0
    with pytest.raises(AssertionError, match="are leaves of the same key"):
        grove.queue.push(leaves[1])


def test_sizes_of_the_lists_of_arc_that_drifted():
    grove, leaves = grow("arc")
    leaves[1].note = 1 - leaves[1].note
    assert_names(grove, "tokens were seen once and again, counted as")


def test_evicted_tokens_of_arc_that_are_counted_wrongly():
    grove, _ = grow("arc")
    grove.queue._ghosts[1].num_tokens += 1
    assert_names(grove, "evicted tokens are remembered, counted as")


def test_an_evicted_run_of_arc_under_a_wrong_name():
    grove, _ = grow("arc")
    ghosts = grove.queue._ghosts[0]
    ghosts._numbers[b"other"] = ghosts._numbers.popitem()[1]
    assert_names(grove, "an evicted run is not filed by its name")

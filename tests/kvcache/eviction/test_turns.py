"""Whose leaf goes next, of many queues: the one whose first leaf is the most urgent."""

import random

import pytest
from support.grove import Grove
from support.grove_walk import Walk

from minisgl.kvcache.eviction import EVICTION_POLICIES, Turns


@pytest.fixture
def turns():
    return Turns()


def plant(turns, name, *times):
    """A grove with a leaf for each of the times at which one was inserted."""
    grove = Grove("lru")
    turns.add(name, grove.queue)
    for time in times:
        grove.clock = time - 1
        grove.insert([time])
    return grove


def test_the_owner_of_the_oldest_leaf_is_next(turns):
    groves = {"a": plant(turns, "a", 1, 4, 5), "b": plant(turns, "b", 2, 3, 6)}
    order = ""
    while (name := turns.next()) is not None:
        order += name
        groves[name].evict()
    assert order == "abbaab"


def test_an_owner_with_nothing_unlocked_is_passed_over_until_it_has(turns):
    a, _ = plant(turns, "a"), plant(turns, "b", 2)
    node = a.insert([7])
    assert turns.next() == "a"
    a.lock(node)
    assert turns.next() == "b"
    a.unlock(node)
    assert turns.next() == "a"


def test_an_owner_that_was_removed_is_never_next(turns):
    plant(turns, "a", 1)
    plant(turns, "b", 2)
    assert turns.next() == "a"
    turns.remove("a")
    assert turns.next() == "b"
    turns.remove("b")
    assert turns.next() is None


@pytest.mark.parametrize("many", [1, 64])
@pytest.mark.parametrize("policy", EVICTION_POLICIES.names)
def test_in_a_random_run_nobody_is_more_urgent_than_the_next(policy, many, turns, monkeypatch):
    monkeypatch.setattr("minisgl.kvcache.eviction.turns._MANY", many)
    walks = [Walk(policy, f"{policy} {i}") for i in range(4)]
    for walk in walks:
        turns.add(walk, walk.grove.queue)
    rng = random.Random(policy)
    for _ in range(600):
        rng.choice(walks).step()
        keys = [key for walk in walks if (key := walk.grove.queue.order_key()) is not None]
        if rng.random() < 0.5:
            walk = turns.next()
            assert (None if walk is None else walk.grove.queue.order_key()) == min(keys, default=None)

"""In which order each policy lets leaves go, on a few prompts of two tokens each."""

import numpy as np
import pytest
import torch

from minisgl.kvcache import RadixPrefixCache
from minisgl.kvcache.eviction import EVICTION_POLICIES


class Prompts:
    """A cache of prompts with a letter each; pages are numbered in order of insertion."""

    def __init__(self, policy):
        self.cache = RadixPrefixCache(torch.device("cpu"), 1, policy)
        self.names = {}

    def insert(self, *names, priority=0):
        """A name of two letters is a prompt that begins with that of the first and has two tokens more."""
        for name in names:
            ids = np.repeat(np.array([ord(letter) for letter in name], np.int32), 2)
            pages = np.arange(len(self.names), len(self.names) + len(ids), dtype=np.int32)
            self.cache.insert_pages(ids, pages, priority=priority)
            self.names |= {int(page): letter for page, letter in zip(pages, np.repeat(list(name), 2), strict=True)}

    def match(self, *names):
        for name in names:
            ids = np.repeat(np.array([ord(letter) for letter in name], np.int32), 2)
            handle = self.cache.match_prefix(ids).cuda_handle
        return handle

    def evict(self, num_leaves):
        """What the next leaves hold, a letter each."""
        order = ""
        for _ in range(num_leaves):
            order += self.names[int(self.cache.evict_pages(1)[0])]
            self.cache.check_integrity()
        return order


def test_a_policy_that_there_is_not_is_refused_with_the_names_of_those_there_are():
    with pytest.raises(
        ValueError, match=r"unknown eviction policy 'lucky'; known: lru, lfu, fifo, mru, slru, arc, pri"
    ):
        EVICTION_POLICIES["lucky"]


def test_lru_takes_what_was_not_visited_for_longest():
    prompts = Prompts("lru")
    prompts.insert("a", "b", "c")
    prompts.match("a")
    assert prompts.evict(3) == "bca"


def test_lfu_takes_what_was_hit_least_and_of_equals_the_least_recent():
    prompts = Prompts("lfu")
    prompts.insert("a", "b", "c", "d")
    prompts.match("a", "a", "b", "d")
    assert prompts.evict(4) == "cbda"


def test_lfu_does_not_count_insertions_as_hits():
    prompts = Prompts("lfu")
    prompts.insert("a", "b")
    prompts.match("b")
    prompts.insert("a", "a", "a")
    assert prompts.evict(2) == "ab"


def test_lfu_starts_from_no_hits_when_evicted_tokens_come_back():
    prompts = Prompts("lfu")
    prompts.insert("a")
    prompts.match("a", "a")
    assert prompts.evict(1) == "a"
    prompts.insert("b", "a")
    prompts.match("b")
    assert prompts.evict(2) == "ab"


def test_fifo_takes_what_was_inserted_first_however_often_it_is_hit():
    prompts = Prompts("fifo")
    prompts.insert("a", "b", "c")
    prompts.match("a", "a")
    assert prompts.evict(3) == "abc"


def test_fifo_tells_a_prompt_from_what_was_added_to_it_later():
    prompts = Prompts("fifo")
    prompts.insert("a", "b", "ac", "d")
    assert prompts.evict(4) == "bcad"


def test_mru_takes_what_was_visited_last():
    prompts = Prompts("mru")
    prompts.insert("a", "b", "c")
    prompts.match("a")
    assert prompts.evict(3) == "acb"


def test_mru_knows_what_was_visited_while_it_was_locked():
    prompts = Prompts("mru")
    prompts.insert("a", "b", "c")
    handle = prompts.match("a")
    prompts.cache.lock_handle(handle)
    prompts.match("b", "a")
    prompts.cache.lock_handle(handle, unlock=True)
    assert prompts.evict(3) == "abc"


def test_slru_takes_what_was_hit_less_than_twice_first():
    prompts = Prompts("slru")
    prompts.insert("a", "b", "c", "d")
    prompts.match("a", "a", "b")
    assert prompts.evict(4) == "cdba"


def test_slru_goes_by_time_among_what_was_hit_twice_however_often():
    prompts = Prompts("slru")
    prompts.insert("a", "b")
    prompts.match("a", "a", "a", "b", "b")
    assert prompts.evict(2) == "ab"


def test_priority_takes_what_only_the_least_important_used():
    prompts = Prompts("priority")
    prompts.insert("a", priority=1)
    prompts.insert("b")
    prompts.insert("c", priority=-1)
    prompts.insert("d")
    assert prompts.evict(4) == "cbda"


def test_priority_rises_with_a_request_that_uses_a_prompt_again_and_never_falls():
    prompts = Prompts("priority")
    prompts.insert("a", "b", priority=1)
    prompts.insert("c")
    prompts.insert("c", priority=5)
    prompts.insert("c")
    assert prompts.evict(3) == "abc"


def test_priority_of_a_prefix_is_that_of_the_most_important_that_begins_with_it():
    prompts = Prompts("priority")
    prompts.insert("a", "b")
    prompts.insert("ac", priority=3)
    prompts.insert("d", priority=2)
    assert prompts.evict(4) == "bdca"


@pytest.mark.parametrize("policy", ["lru", "lfu", "slru", "fifo", "arc", "priority"])
def test_a_policy_without_anything_to_go_by_takes_the_oldest(policy):
    prompts = Prompts(policy)
    prompts.insert("a", "b", "c")
    assert prompts.evict(3) == "abc"


@pytest.mark.parametrize("policy", EVICTION_POLICIES.names)
def test_a_trimmed_leaf_stays_the_first(policy):
    prompts = Prompts(policy)
    prompts.insert("a", "b", "c")
    trimmed = [prompts.names[int(prompts.cache.evict_pages(1, trim=True)[0])] for _ in range(6)]
    assert trimmed[::2] == trimmed[1::2]
    assert sorted(trimmed[::2]) == ["a", "b", "c"]

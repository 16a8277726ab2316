"""ARC on prompts of a few tokens: its two lists, and what it learns from what comes back."""

import pytest
from support.grove import Grove


@pytest.fixture
def grove():
    return Grove("arc")


def insert(grove, *names):
    for name in names:
        grove.insert([ord(letter) for letter in name])


def match(grove, *names):
    for name in names:
        grove.match([ord(letter) for letter in name])


def evict(grove, num_leaves):
    return ["".join(map(chr, grove.evict())) for _ in range(num_leaves)]


def test_what_was_seen_once_goes_before_what_was_seen_again(grove):
    insert(grove, "aa")
    match(grove, "aa")
    insert(grove, "bb", "cc")
    assert evict(grove, 3) == ["bb", "cc", "aa"]


def learn(grove):
    """Seen again: aa, and bb that has come back; seen once: cc, with room for it."""
    insert(grove, "aa")
    match(grove, "aa")
    insert(grove, "bb", "cc")
    assert evict(grove, 1) == ["bb"]
    insert(grove, "bb")
    assert grove.queue._target == 2


def test_what_comes_back_soon_makes_room_for_what_was_seen_once(grove):
    learn(grove)
    assert evict(grove, 3) == ["aa", "bb", "cc"]


def test_what_comes_back_after_it_was_seen_again_takes_that_room_back(grove):
    learn(grove)
    assert evict(grove, 1) == ["aa"]
    insert(grove, "aa")
    assert grove.queue._target == 0
    assert evict(grove, 3) == ["cc", "bb", "aa"]


def test_what_comes_back_in_part_counts_in_part(grove):
    insert(grove, "zz", "abcd")
    match(grove, "zz")
    assert evict(grove, 1) == ["abcd"]
    insert(grove, "abxyz")
    assert grove.queue._target == 2
    assert [ghosts.num_tokens for ghosts in grove.queue._ghosts] == [2, 0]
    assert grove.sizes() == [5, 2]


def test_what_comes_back_by_half_was_seen_again(grove):
    insert(grove, "zz", "abcd")
    match(grove, "zz")
    evict(grove, 1)
    insert(grove, "abxy")
    assert grove.sizes() == [0, 6]


def test_evicted_tokens_are_known_again_whatever_nodes_they_were_in(grove):
    insert(grove, "zzzzzzzzz", "abcd", "abef")
    match(grove, "zzzzzzzzz")
    assert evict(grove, 3) == ["abcd", "abef", "ab"]
    insert(grove, "abef")
    assert [ghosts.num_tokens for ghosts in grove.queue._ghosts] == [2, 0]
    assert grove.sizes() == [0, 13]


def test_a_leaf_trimmed_page_by_page_comes_back_whole(grove):
    insert(grove, "zz", "abcd")
    match(grove, "zz")
    for _ in range(4):
        grove.evict(1)
    assert grove.texts() == {(ord("z"), ord("z"))}
    insert(grove, "abcd")
    assert grove.sizes() == [0, 6]


def test_no_more_is_remembered_than_is_cached(grove):
    for i in range(200):
        insert(grove, chr(1000 + i) * 5)
        match(grove, chr(1000 + i) * 5 if i % 3 else "")
        if i >= 10:
            size = sum(grove.sizes())
            grove.evict(5)
            remembered = [ghosts.num_tokens for ghosts in grove.queue._ghosts]
            assert grove.sizes()[0] + remembered[0] <= size
            assert sum(grove.sizes()) + sum(remembered) <= 2 * size
    grove.check()
    assert sum(remembered) > 25


def test_a_flush_forgets_what_was_learnt(grove):
    learn(grove)
    grove.queue.clear()
    assert grove.queue._target == 0
    grove.queue.check_integrity([])
    assert [ghosts.num_tokens for ghosts in grove.queue._ghosts] == [0, 0]


def test_the_rarer_memory_of_the_two_weighs_more(grove):
    insert(grove, "zzzzzzzz", "aaaaaa", "bb")
    match(grove, "zzzzzzzz", "aaaaaa")
    assert evict(grove, 1) == ["bb"]
    grove.expect(grove.match([ord("z")] * 8))
    assert evict(grove, 1) == ["aaaaaa"]
    insert(grove, "b")
    assert [ghosts.num_tokens for ghosts in grove.queue._ghosts] == [1, 6]
    assert grove.queue._target == 1 * 6 // 2

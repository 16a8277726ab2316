"""What is remembered of evicted tokens, against a plain account of all paths that ever were."""

import gc

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.ghost_model import Remembering, ids
from support.radix_model import NAMESPACES

from minisgl.kvcache import PUBLIC, Namespace, explain, ghost_list
from minisgl.kvcache.eviction import EVICTION_POLICIES
from minisgl.kvcache.ghost import Fork, Ghost, GhostRoot, below

TOKENS = st.lists(st.integers(0, 1), max_size=11).map(tuple)
PROMPTS = st.lists(st.integers(0, 1), min_size=1, max_size=11).map(tuple)
SPACES = st.sampled_from(NAMESPACES)


class GhostMachine(RuleBasedStateMachine):
    """Hypothesis looks for the shortest run of operations after which a prompt is explained wrongly. Of two tokens."""

    @initialize(page_size=st.sampled_from([1, 2, 3]), eviction=st.sampled_from(EVICTION_POLICIES.names))
    def start(self, page_size, eviction):
        self.both = Remembering(page_size, eviction=eviction)

    @rule(tokens=TOKENS, namespace=SPACES, lock=st.booleans(), notes_tail=st.booleans())
    def insert(self, tokens, namespace, lock, notes_tail):
        self.both.insert(tokens, namespace, lock, notes_tail)

    @rule(tokens=TOKENS, namespace=SPACES, lock=st.booleans())
    def match(self, tokens, namespace, lock):
        self.both.match(tokens, namespace, lock)

    @rule(index=st.integers(0, 9))
    def unlock(self, index):
        self.both.unlock(index)

    @rule(num_pages=st.integers(0, 6), trim=st.booleans())
    def evict(self, num_pages, trim):
        self.both.evict(num_pages, trim)

    @rule(prefix=st.lists(st.integers(0, 1), max_size=4), namespace=st.none() | SPACES)
    def purge(self, prefix, namespace):
        self.both.purge(prefix, namespace)

    @rule(tokens=PROMPTS, namespace=SPACES)
    def ask(self, tokens, namespace):
        self.both.check(tokens, namespace)

    @invariant()
    def recount(self):
        self.both.cache.check_integrity()


TestGhostMachine = GhostMachine.TestCase
TestGhostMachine.settings = settings(max_examples=60, stateful_step_count=25, deadline=None, derandomize=True)


def run(both, seed, num_operations, check=True):
    """Prompts that often begin as earlier ones did, of three tokens; more is evicted than inserted."""
    rng, recent = np.random.default_rng(seed), [()] * 6
    for _ in range(num_operations):
        which, choice, namespace = rng.integers(6), rng.random(), NAMESPACES[rng.choice(3, p=[0.7, 0.2, 0.1])]
        start = recent[which][: rng.integers(len(recent[which]) + 1)]
        tokens = (*start, *rng.integers(0, 3, rng.integers(1, 3 * both.page_size + 1)).tolist())[: 10 * both.page_size]
        if choice < 0.35:
            recent[which] = tokens
            both.insert(tokens, namespace, notes_tail=choice < 0.2)
        elif choice < 0.6:
            both.evict(int(rng.integers(1, 5)), trim=choice < 0.55)
        elif check:
            both.check(tokens, namespace)
        yield both


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_random_prompts_are_explained_as_the_plain_account_explains_them(page_size, monkeypatch):
    monkeypatch.setattr(explain, "MAX_BRANCHES", 10_000)
    for i, both in enumerate(run(Remembering(page_size), seed=page_size, num_operations=400)):
        if i % 20 == 0:
            both.cache.check_integrity()


@pytest.mark.parametrize("ghost_tokens", [0, 1, 7, 50])
def test_no_more_is_remembered_than_was_asked_for(ghost_tokens):
    both = Remembering(4, ghost_tokens)
    for _ in run(both, seed=1, num_operations=400, check=False):
        assert both.cache._tree.ghosts.num_tokens <= ghost_tokens
    both.cache.check_integrity()
    assert both.num_evicted > 200


def test_nor_more_runs_than_there_may_be(monkeypatch):
    monkeypatch.setattr(ghost_list, "MAX_RUNS", 3)
    both = Remembering(1)
    for first in range(5):
        both.insert((first, first))
        both.evict(2, trim=False)
    both.cache.check_integrity()
    known = [both.cache.explain(ids((first, first, 9))).evicted for first in range(5)]
    assert known == [0, 0, 2, 2, 2]


def test_the_oldest_are_forgotten_first():
    both = Remembering(2, ghost_tokens=8)
    for first in (10, 20, 30):
        both.insert((first, 1, 2, 3))
        both.evict(2, trim=False)
    assert [both.cache.explain(ids((first, 1, 2, 3, 4))).evicted for first in (10, 20, 30)] == [0, 4, 4]


def test_of_a_run_that_is_too_long_the_beginning_is_remembered():
    both = Remembering(2, ghost_tokens=5)
    both.insert(range(10))
    both.evict(5, trim=False)
    both.cache.check_integrity()
    assert both.cache.explain(ids(range(11))).evicted == 4


def test_what_is_cached_again_is_not_a_ghost_any_more():
    both = Remembering(2)
    both.insert((1, 2, 3, 4, 5, 6))
    both.evict(3, trim=False)
    both.insert((1, 2, 3, 4))
    assert both.cache._tree.ghosts.num_tokens == 2
    assert both.cache.explain(ids((1, 2, 3, 4, 5, 6, 7))).evicted == 2
    both.insert((1, 2, 3, 4, 5, 6))
    assert both.cache._tree.ghosts.num_tokens == 0
    both.cache.check_integrity()


def test_a_long_prompt_is_followed_too():
    both, prompt = Remembering(4), tuple(range(6001))
    both.insert(prompt)
    both.evict(700, trim=True)
    both.insert((*prompt[:5000], *range(800)))
    both.check((*prompt[:5002], *range(30)))
    both.check(prompt)
    both.check(range(7000))
    both.purge(prompt[:4990])
    both.check(prompt)
    both.cache.check_integrity()


def test_pages_that_go_one_by_one_are_one_run_as_old_as_each_of_them():
    both, prompt = Remembering(2), tuple(range(40))
    both.insert(prompt)
    both.insert((*prompt[:20], 99, 98))
    both.match(prompt[:22], lock=True)
    for _ in range(9):
        both.evict(1, trim=True)
    assert [len(ghost.token_bytes) // 4 for ghost in below(both.locked[0].node)] == [18]
    both.check(prompt)
    both.insert(prompt[:30])
    both.check(prompt)
    both.cache.check_integrity()


@pytest.mark.parametrize("prefix", [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4, 5), (1, 2, 3, 4, 5, 6, 7)])
def test_a_purge_forgets_what_was_evicted_before(prefix):
    both = Remembering(2)
    both.insert((1, 2, 3, 4, 5, 6, 7), notes_tail=True)
    both.insert((8, 9))
    both.evict(4, trim=False)
    both.purge(prefix, PUBLIC)
    both.cache.check_integrity()
    assert both.cache.explain(ids((1, 2, 3, 4, 5, 6, 7))).left_at < max(1, len(prefix))
    assert both.cache.explain(ids((8, 9, 1))).evicted == (2 if prefix else 0)


def test_a_purge_of_one_namespace_leaves_others_their_ghosts():
    both, other = Remembering(1), Namespace("other")
    for namespace in (PUBLIC, other):
        both.insert((1, 2, 3), namespace)
    both.evict(6, trim=False)
    both.purge((), other)
    assert both.cache.explain(ids((1, 2, 3, 4)), other).never_seen == 4
    assert both.cache.explain(ids((1, 2, 3, 4))).evicted == 3
    both.purge(())
    assert both.cache.explain(ids((1, 2, 3, 4))).never_seen == 4


def test_a_namespace_of_which_nothing_is_cached_any_more_keeps_no_root_but_its_ghosts():
    both, other = Remembering(1, ghost_tokens=4), Namespace("other")
    both.insert((1, 2, 3), other)
    both.evict(3, trim=False)
    forest, ghosts = both.cache._tree.forest, both.cache._tree.ghosts
    assert forest.find(other) is None
    assert ghosts.namespaces == [other]
    assert both.cache.explain(ids((1, 2, 3, 4)), other).evicted == 3
    both.insert((7, 8))
    both.evict(2, trim=False)  # the others are forgotten for them
    assert ghosts.namespaces == [PUBLIC]


@pytest.mark.parametrize("eviction", EVICTION_POLICIES.names)
def test_the_same_pages_go_whether_ghosts_are_remembered_or_not(eviction):
    with_ghosts, without = Remembering(2, 40, eviction), Remembering(2, None, eviction)
    each = zip(run(with_ghosts, 3, 250, check=False), run(without, 3, 250, check=False), strict=True)
    for _ in each:
        assert sorted(with_ghosts.cache.cached_pages()) == sorted(without.cache.cached_pages())
    assert with_ghosts.num_evicted > 100


def test_without_ghosts_nothing_is_looked_up():
    both = Remembering(2, None)
    both.insert((1, 2, 3, 4))
    both.evict(1, trim=False)
    assert both.cache.explain(ids((1, 2, 3))).not_looked_up == 3
    assert all(node.forks is None for node in both.cache._tree.forest.nodes())


def test_what_is_forgotten_is_freed_without_a_search_for_cycles():
    both = Remembering(1, ghost_tokens=6)
    gc.collect()
    gc.disable()
    try:
        for first in range(5):
            both.insert((first, 1, 2))
            both.insert((first, 1, 3))
            both.evict(4, trim=False)
        both.cache.flush()
        left = [each for each in gc.get_objects() if type(each) in (Ghost, GhostRoot, Fork)]
        assert {type(each) for each in left} <= {Ghost}
        assert not any(ghost.token_bytes or ghost.forks or ghost.fork for ghost in left)
    finally:
        gc.enable()

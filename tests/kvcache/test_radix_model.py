"""The radix cache against a second, slow account of the same rules: a plain dict from prefix to page."""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.radix_both import Both
from support.radix_model import NAMESPACES

from minisgl.kvcache.eviction import EVICTION_POLICIES


def random_tokens(rng, recent, page_size):
    """The start of an earlier prompt (often), then tokens of an alphabet of three."""
    start = recent[rng.integers(len(recent))] if rng.random() < 0.8 else ()
    start = start[: rng.integers(len(start) + 1)]
    tail = rng.integers(0, 3, rng.integers(3 * page_size + 2)).tolist()
    recent[rng.integers(len(recent))] = tokens = (start + tuple(tail))[: 12 * page_size + 1]
    return tokens


def run_random_operations(seed, page_size, num_operations, eviction="lru", num_spaces=3):
    rng = np.random.default_rng(seed)
    both, recent = Both(page_size, eviction), [()] * 8
    for i in range(num_operations):
        choice, namespace = rng.random(), NAMESPACES[rng.choice(3, p=[0.7, 0.2, 0.1]) % num_spaces]
        if choice < 0.3:
            both.insert(random_tokens(rng, recent, page_size), choice < 0.15, namespace, int(rng.integers(3)))
        elif choice < 0.5:
            both.match(random_tokens(rng, recent, page_size), choice < 0.4, namespace)
        elif choice < 0.51:
            start = recent[rng.integers(8)]
            start = start[: rng.integers(len(start) + 1)]
            both.purge(
                None if rng.random() < 0.2 else namespace, start if len(start) > 2 or rng.random() < 0.2 else (1, 1, 1)
            )
        elif choice < 0.53:
            both.probe(random_tokens(rng, recent, page_size), namespace)
        elif choice < 0.58:
            random_watching(rng, both, random_tokens(rng, recent, page_size), namespace)
        elif choice < 0.64 and both.kept:
            both.lock_kept(int(rng.integers(4)))
        elif choice < 0.85 and both.locked:
            both.unlock(int(rng.integers(len(both.locked))))
        elif len(both.model.entries) > 24:
            both.evict(int(rng.integers(12)), trim=choice > 0.9)
        both.compare()
        if i % 20 == 0:
            both.cache.check_integrity()
        if i % 20 == 10:
            both.compare_watches()
    assert both.num_pages_made > num_operations / 4


def random_watching(rng, both, tokens, namespace):
    if len(both.watched) < 4 or (len(both.watched) < 12 and rng.random() < 0.5):
        both.watch(tokens, namespace)
    elif rng.random() < 0.3:
        both.unwatch(int(rng.integers(12)))
    elif rng.random() < 0.7 and len(both.spaces) == 1:
        both.expect(int(rng.integers(12)), expected=bool(rng.random() < 0.7))
    else:
        both.advance(int(rng.integers(4)))


@pytest.mark.parametrize(("page_size", "num_spaces"), [(1, 1), (4, 1), (1, 3), (4, 3)])
def test_r7_random_operations_agree_with_the_model_at_every_step(page_size, num_spaces):
    run_random_operations(seed=0, page_size=page_size, num_operations=1_500, num_spaces=num_spaces)


@pytest.mark.parametrize("eviction", [name for name in EVICTION_POLICIES.names if name != "lru"])
def test_random_operations_under_other_policies_keep_the_tree_whole(eviction):
    run_random_operations(seed=0, page_size=2, num_operations=1_000, eviction=eviction)


@pytest.mark.nightly
@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("num_spaces", [1, 3])
@pytest.mark.parametrize("seed", range(5))
def test_r7_long_random_runs_agree_with_the_model_at_every_step(seed, page_size, num_spaces):
    run_random_operations(seed, page_size, num_operations=20_000, num_spaces=num_spaces)


TOKENS = st.lists(st.integers(0, 1), max_size=9).map(tuple)
SPACES = st.sampled_from(NAMESPACES)


class RadixMachine(RuleBasedStateMachine):
    """Hypothesis looks for the shortest run of operations in which cache and model disagree. Vocabulary of two."""

    @initialize(page_size=st.sampled_from([1, 2, 3]))
    def start(self, page_size):
        self.both = Both(page_size)

    @rule(tokens=TOKENS, lock=st.booleans(), namespace=SPACES)
    def match(self, tokens, lock, namespace):
        self.both.match(tokens, lock, namespace)

    @rule(tokens=TOKENS, lock=st.booleans(), namespace=SPACES)
    def insert(self, tokens, lock, namespace):
        self.both.insert(tokens, lock, namespace)

    @rule(tokens=TOKENS, namespace=SPACES)
    def probe(self, tokens, namespace):
        self.both.probe(tokens, namespace)

    @rule(prefix=TOKENS, namespace=st.none() | SPACES)
    def purge(self, prefix, namespace):
        self.both.purge(namespace, prefix)

    @precondition(lambda self: self.both.kept)
    @rule(i=st.integers(0, 3))
    def lock_kept(self, i):
        self.both.lock_kept(i)

    @precondition(lambda self: self.both.locked)
    @rule(i=st.integers(0, 9))
    def unlock(self, i):
        self.both.unlock(i)

    @rule(num_pages=st.integers(0, 9), trim=st.booleans())
    def evict(self, num_pages, trim):
        self.both.evict(num_pages, trim)

    @rule(tokens=TOKENS, namespace=SPACES)
    def watch(self, tokens, namespace):
        self.both.watch(tokens, namespace)

    @precondition(lambda self: self.both.watched)
    @rule(i=st.integers(0, 9))
    def unwatch(self, i):
        self.both.unwatch(i)

    @precondition(lambda self: self.both.watched)
    @rule(i=st.integers(0, 9), expected=st.booleans())
    def expect(self, i, expected):
        self.has_expected = True
        self.both.expect(i, expected)

    @rule(budget=st.integers(0, 3))
    def advance(self, budget):
        self.both.advance(budget)

    @rule()
    def advance_all(self):
        self.both.compare_watches()

    @invariant()
    def agree(self):
        self.both.compare()
        self.both.cache.check_integrity()


TestRadixMachine = RadixMachine.TestCase
TestRadixMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None, derandomize=True)

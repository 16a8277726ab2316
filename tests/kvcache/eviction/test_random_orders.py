"""Every policy's lazy queue against a plain account of the same rule, which looks at all leaves each time."""

import random

import pytest
from support.grove import Grove

from minisgl.kvcache.eviction import EVICTION_POLICIES, lazy_heap, places


class Walk:
    """Random operations on a grove of prompts of three tokens."""

    def __init__(self, policy, seed):
        self.random = random.Random(seed)
        self.grove = Grove(policy)
        self.locked, self.recent = [], [()] * 8
        self.num_evicted = 0

    def prompt(self):
        """Often the start of an earlier one, and some more."""
        start = self.random.choice(self.recent) if self.random.random() < 0.8 else ()
        start = start[: self.random.randint(0, len(start))]
        tokens = start + tuple(self.random.choices(range(3), k=self.random.randint(0, 4)))
        self.recent[self.random.randrange(8)] = tokens
        return tokens[:14]

    def insert(self):
        node = self.grove.insert(self.prompt(), self.random.choice([-1, 0, 0, 2]))
        if self.random.random() < 0.3:
            self.lock(node)

    def match(self):
        node = self.grove.match(self.prompt())
        if self.random.random() < 0.4:
            self.lock(node)

    def lock(self, node):
        self.grove.lock(node)
        self.locked.append(node)

    def unlock(self):
        if self.locked:
            self.grove.unlock(self.locked.pop(self.random.randrange(len(self.locked))))

    def expect(self):
        if self.grove.accounts:
            node = self.random.choice(list(self.grove.accounts))
            self.grove.expect(node)

    def unexpect(self):
        expected = [node for node in self.grove.accounts if node.num_expected]
        if expected:
            self.grove.unexpect(self.random.choice(expected))

    def evict(self):
        for _ in range(self.random.randint(1, 4)):
            if len(self.grove.accounts) > 12 and self.grove.first_by_the_account() is not None:
                self.grove.evict(self.random.choice([None, None, 1, 2]))
                self.num_evicted += 1

    def merge(self):
        if self.grove.accounts:
            self.grove.merge(self.random.choice(list(self.grove.accounts)))

    def purge(self):
        unlocked = [node for node in self.grove.accounts if node.ref_count == 0]
        if unlocked and self.random.random() < 0.1:
            self.grove.purge(self.random.choice(unlocked))

    def run(self, num_operations):
        operations = {
            self.insert: 30, self.match: 20, self.unlock: 25, self.expect: 8, self.unexpect: 8, self.evict: 20,
            self.merge: 10, self.purge: 4,
        }  # fmt: skip
        for operation in self.random.choices(list(operations), list(operations.values()), k=num_operations):
            operation()
            self.grove.check()
        assert self.num_evicted > num_operations / 20


@pytest.mark.parametrize("policy", EVICTION_POLICIES.names)
def test_a_random_run_evicts_what_the_plain_account_says(policy):
    Walk(policy, seed=policy).run(600)


@pytest.fixture
def sweep_always(monkeypatch):
    """Heaps this small never have so many left-over entries that they sweep, unless few are many."""
    monkeypatch.setattr(lazy_heap, "_FEW", 2)
    monkeypatch.setattr(places, "_FEW", 0)


@pytest.mark.usefixtures("sweep_always")
@pytest.mark.parametrize("policy", EVICTION_POLICIES.names)
def test_sweeping_left_over_entries_out_changes_nothing(policy):
    Walk(policy, seed=f"sweep {policy}").run(600)


@pytest.mark.nightly
@pytest.mark.parametrize("policy", EVICTION_POLICIES.names)
@pytest.mark.parametrize("seed", range(10))
def test_long_random_runs_evict_what_the_plain_account_says(policy, seed):
    Walk(policy, seed).run(5_000)

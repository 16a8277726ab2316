"""Every policy's lazy queue against a plain account of the same rule, which looks at all leaves each time."""

import pytest
from support.grove_walk import Walk

from minisgl.kvcache.eviction import EVICTION_POLICIES, lazy_heap, places


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

"""The scheduler's process looks for cycles of old objects hardly ever (utils/garbage.py): so it must leave none."""

import gc

import pytest
from support.serving import Serving

from minisgl.kvcache.eviction import EVICTION_POLICIES


@pytest.fixture
def unreachable():
    """Objects that only the collector would have found, by the name of their type; none that was there before."""
    gc.collect()
    gc.freeze()
    gc.disable()
    yield lambda: {type(thing).__name__ for thing in _saved()}
    gc.set_debug(0)
    gc.garbage.clear()
    gc.unfreeze()
    gc.enable()


def _saved():
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    return [thing for thing in gc.garbage if type(thing).__module__.startswith("minisgl")]


@pytest.mark.parametrize("policy", ["fcfs", "lpm", "dfs-weight", "priority", "srp"])
@pytest.mark.parametrize("eviction", EVICTION_POLICIES.names)
def test_requests_nodes_watches_and_namespaces_that_are_gone_leave_no_cycle(unreachable, policy, eviction):
    serving = Serving(num_pages=40, max_running_req=3, policy=policy, eviction=eviction, reserve="stingy")
    for i in range(30):
        serving.submit([1, 2, 3, i % 7, i % 5, i], max_tokens=6, salt=f"{i // 2}" if i % 4 else "", explain=i % 3 == 0)
        serving.step()
        if i % 6 == 5:
            serving.abort(i - 1)
        if i % 11 == 10:
            serving.purge(prefix=[1, 2])
    serving.run()
    assert serving.manager.num_evicted_pages > 0
    assert unreachable() == set()

"""`SchedulerConfig` names what can be chosen without importing it: the server's process has no torch."""

import pytest

from minisgl.kvcache import PREFIX_CACHES
from minisgl.kvcache.eviction import EVICTION_POLICIES
from minisgl.scheduler.config import SchedulerConfig
from minisgl.scheduler.ordering import POLICIES
from minisgl.scheduler.reserve import RESERVES

CHOICES = {
    "cache_type": PREFIX_CACHES.names,
    "eviction": EVICTION_POLICIES.names,
    "policy": POLICIES.names,
}


@pytest.mark.parametrize("name", CHOICES)
def test_what_can_be_chosen_is_what_there_is(name):
    choices = SchedulerConfig.__dataclass_fields__[name].metadata["choices"]
    assert sorted(choices) == sorted(CHOICES[name])


def test_each_reserve_that_can_be_chosen_is_there():
    assert set(SchedulerConfig.__dataclass_fields__["reserve"].metadata["choices"]) <= set(RESERVES)

"""One run's estimate beside runs with the pools that it is about."""

from __future__ import annotations

import pytest
from support.traces import TAU_AIRLINE, make_request, make_trace

from minisgl.core import CAPACITY_FACTORS
from minisgl.simulate.capacity import estimates, make_curve
from minisgl.simulate.config import SimulationConfig
from minisgl.simulate.replay import replay
from minisgl.simulate.study import study
from minisgl.simulate.trace import Trace, read_trace
from minisgl.simulate.workload import make_workload


def told(trace: Trace, num_pages: int, *, expand: bool = False) -> dict[float, float]:
    workload = make_workload(trace, 16, expand=expand)
    curve = make_curve(workload, num_pages)
    counts = replay(workload, num_pages, curve=curve)
    return {each["factor"]: each["hit_rate"] for each in estimates(curve.hits, workload, counts)}


def measured(trace: Trace, num_pages: int) -> dict[float, float]:
    workload = make_workload(trace, 16)
    return {factor: replay(workload, int(factor * num_pages)).hit_rate for factor in CAPACITY_FACTORS}


def test_prompts_that_take_turns_are_hit_where_there_is_room_for_both():
    prompts = [1, 2, 3], [4, 5, 6], [1, 2, 3, 7], [4, 5, 6, 8]
    trace = make_trace([make_request(prompt, block_size=16) for prompt in prompts], block_size=16)
    assert told(trace, 4) == {0.5: 0, 1: 1 / 14, 2: 6 / 14, 4: 6 / 14, 8: 6 / 14}


def test_the_estimate_of_real_requests_is_within_half_a_point_of_what_the_pools_hit():
    trace = read_trace(TAU_AIRLINE)
    assert told(trace, 1500) == pytest.approx(measured(trace, 1500), abs=0.005)


def test_where_tokens_are_units_it_is_the_same_within_half_a_point():
    trace = read_trace(TAU_AIRLINE, limit=40)
    assert told(trace, 1500, expand=True) == pytest.approx(told(trace, 1500), abs=0.005)


@pytest.mark.parametrize("clock", [True, False])
def test_a_study_tells_it_beside_what_was_measured(clock: bool):
    result = study(read_trace(TAU_AIRLINE, limit=60), SimulationConfig(clock=clock, pages=900))["result"]
    assert [each["factor"] for each in result["capacity"]] == list(CAPACITY_FACTORS)
    assert result["capacity"][1]["hit_rate"] == pytest.approx(result["hit_rate"])
    rates = [each["hit_rate"] for each in result["capacity"]]
    assert rates == sorted(rates)


def test_without_a_cache_there_is_nothing_to_tell():
    result = study(read_trace(TAU_AIRLINE, limit=20), SimulationConfig(cache_type="naive", pages=900))["result"]
    assert result["capacity"] == []

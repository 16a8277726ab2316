from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.traces import TAU_AIRLINE, make_request, make_trace

from minisgl.simulate.arrivals import Arrivals
from minisgl.simulate.config import SimulationConfig
from minisgl.simulate.simulation import simulate
from minisgl.simulate.study import study
from minisgl.simulate.trace import Trace, read_trace
from minisgl.simulate.workload import make_workload

# A step takes a second and each prompt token a hundredth; the rest is free.
STEPS = SimulationConfig(page_size=1, overhead_ms=1000, prefill_us=10_000, decode_us=0, context_ns=0, lookahead=0)


def serve(trace: Trace, num_pages: int = 64, config: SimulationConfig = STEPS, scale: float = 1.0) -> dict[str, Any]:
    workload = make_workload(trace, config.page_size, expand=config.expand, fill=True)
    return simulate(workload, config, num_pages, Arrivals(workload.items, scale, sessions=config.sessions))


def test_a_request_takes_its_prompt_s_step_and_one_for_each_further_token():
    # Ten prompt tokens and the first of three generated ones in 1.1 s, then two steps of a second; it came at 5 s.
    done = serve(make_trace([make_request(range(10), [10, 11], at=5.0)]))
    assert (done["num_batches"], done["computed_tokens"]) == (3, 10)
    assert done["wait_s"]["max"] == 0
    assert done["ttft_s"]["max"] == pytest.approx(1.1)
    assert done["duration_s"] == pytest.approx(8.1)
    assert done["busy_s"] == pytest.approx(3.1)


def test_a_request_that_comes_in_the_middle_of_a_step_waits_for_its_end():
    done = serve(make_trace([make_request([1] * 1, [2, 3], at=0.0), make_request([4], at=0.41)]))
    assert done["wait_s"]["max"] == pytest.approx(1.01 - 0.41)


def test_the_next_turn_hits_prompt_and_output_of_the_one_before():
    turns = [make_request([1, 2], [3, 4], at=0.0), make_request([1, 2, 3, 4, 5], [6], at=60.0)]
    assert serve(make_trace(turns))["hit_tokens"] == 4


def test_without_a_cache_nothing_is_hit():
    turns = [make_request([1, 2], [3, 4], at=0.0), make_request([1, 2, 3, 4, 5], [6], at=60.0)]
    done = serve(make_trace(turns), config=replace(STEPS, cache_type="naive"))
    assert (done["hit_tokens"], done["computed_tokens"]) == (0, 7)


def test_a_session_s_next_turn_waits_for_the_answer_if_that_is_asked_for():
    # The first turn takes 1.02 + 2 s; the second one was sent after 1 s.
    turns = [make_request([1, 2], [3, 4], at=0.0, session=1), make_request([1, 2, 3, 4, 5], at=1.0, session=1)]
    assert serve(make_trace(turns))["hit_tokens"] == 2
    done = serve(make_trace(turns), config=replace(STEPS, sessions=True))
    assert (done["hit_tokens"], done["wait_s"]["max"]) == (4, 0)
    assert done["duration_s"] == pytest.approx(3.02 + 1.01)


def test_a_pool_that_runs_dry_evicts_and_reports_it():
    done = serve(make_trace([make_request([n, n + 1], at=float(9 * n)) for n in range(0, 10, 2)]), num_pages=4)
    assert done["num_evicted_pages"] == 6


def test_a_long_prompt_goes_in_chunks():
    done = serve(make_trace([make_request(range(10))]), config=replace(STEPS, max_extend_tokens=4))
    assert done["num_batches"] == 3
    assert done["ttft_s"]["max"] == pytest.approx(3.1)


def test_with_pages_for_tokens_the_work_stays_the_same():
    trace = read_trace(TAU_AIRLINE, limit=12)
    short = serve(trace, 2000, SimulationConfig())
    full = serve(trace, 2000, SimulationConfig(expand=True))
    # A prompt whose pages are all cached computes its last token alone there, its last page here.
    assert short["computed_tokens"] == pytest.approx(full["computed_tokens"], abs=12 * 16)
    assert (short["num_requests"], short["num_failed"]) == (full["num_requests"], 0)
    assert short["generated_tokens"] == sum(request.output_len for request in trace.requests)
    assert short["duration_s"] == pytest.approx(full["duration_s"], rel=0.02)


@pytest.mark.parametrize("policy", ["fcfs", "lpm", "srp"])
def test_the_same_trace_gives_the_same_result(policy: str):
    config = SimulationConfig(policy=policy, load=1.5, pages=800)
    trace = read_trace(TAU_AIRLINE, limit=80)
    assert study(trace, config) == study(trace, config)


def test_at_a_load_over_one_requests_wait_longer():
    trace = read_trace(TAU_AIRLINE, limit=80)
    waits = [study(trace, SimulationConfig(load=load))["result"]["wait_s"]["mean"] for load in (0.2, 2.0)]
    assert waits[0] < waits[1]


def test_more_is_retracted_where_all_ask_for_more_than_they_take_and_nothing_is_where_it_is_reserved():
    requests = [make_request([n], range(100 + 40 * n, 130 + 40 * n)) for n in range(12)]
    config = replace(STEPS, max_tokens=60)
    done = {
        reserve: serve(make_trace(requests), 128, replace(config, reserve=reserve)) for reserve in ("full", "estimate")
    }
    assert done["full"]["num_retracted"] == 0
    assert done["estimate"]["generated_tokens"] >= done["full"]["generated_tokens"] == 12 * 30
    assert done["estimate"]["duration_s"] < done["full"]["duration_s"]


def test_the_optimum_and_the_pool_stand_beside_the_result():
    summary = study(read_trace(TAU_AIRLINE), SimulationConfig(clock=False, pages=800))
    assert (summary["trace"], summary["licence"], summary["num_pages"]) == ("tau_airline_200", "MIT", 800)
    assert summary["result"]["hit_rate"] <= summary["optimum"]["hit_rate"]


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"load": 0.0}, "load=0.0 is not over 0"),
        ({"pages": 0}, "pages=0 is not an integer of at least 1"),
        ({"engine": "abacus"}, "engine='abacus' is not one of h200-8b, cpu-135m"),
        ({"overhead_ms": -1.0}, "overhead_ms=-1.0 is not a time"),
        ({"clock": False, "policy": "lpm"}, "policy='lpm' does nothing without a clock"),
        ({"policy": "priority"}, "policy='priority' does nothing without priorities"),
        ({"eviction": "priority"}, "eviction='priority' does nothing without priorities"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(fields: dict[str, Any], error: str):
    with pytest.raises(ValueError, match=error):
        SimulationConfig(**fields)

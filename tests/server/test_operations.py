from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.server_app import ask, make_app, make_state

from minisgl.core import CAUSES
from minisgl.llm import EngineDied
from minisgl.message import EngineStats
from minisgl.server import operations
from minisgl.server.config import ServerConfig
from minisgl.server.errors import ApiError
from minisgl.server.exposition import FAMILIES
from minisgl.server.state import ServerState

STATS = EngineStats(
    num_running=3,
    num_waiting=2,
    num_pages=100,
    page_size=16,
    free_pages=25,
    evictable_tokens=400,
    queried_tokens=1000,
    hit_tokens=750,
    evicted_tokens=32,
    computed_tokens=250,
    num_retracted=5,
    num_batches=40,
    host_s=0.5,
)


def engine_with(stats: Any) -> Any:
    async def answer() -> EngineStats:
        return await stats() if callable(stats) else stats

    return SimpleNamespace(stats=answer)


def scrape(state: ServerState) -> dict[str, dict[tuple[str, ...], float]]:
    """name -> (values of the labels other than model_name, le) -> value."""
    response = ask(make_app(state), "GET", "/metrics")
    assert response.status_code == 200
    samples: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(response.text):
        for name, labels, value, *_ in family.samples:
            rest = tuple(text for label, text in labels.items() if label != "model_name")
            samples.setdefault(name, {})[rest] = value
            if name.startswith("minisgl_"):
                assert labels["model_name"] == "a-model"
    return samples


@pytest.mark.parametrize(
    ("changes", "status", "word"),
    [
        ({}, 503, "loading"),
        ({"engine": engine_with(STATS)}, 200, "ok"),
        ({"engine": engine_with(STATS), "error": "the engine died"}, 503, "dead"),
    ],
)
def test_health_is_ok_only_when_requests_are_served(changes: dict[str, Any], status: int, word: str) -> None:
    response = ask(make_app(make_state(**changes)), "GET", "/health")
    assert (response.status_code, response.json()) == (status, {"status": word})


def test_what_pools_of_other_sizes_would_hit_is_told_by_their_sizes() -> None:
    told = replace(STATS, capacity_hits=(100.5, 200.0, 300.0, 400.0, 500.0), capacity_queried=1000)
    samples = scrape(make_state(engine=engine_with(told)))
    hits = samples["minisgl_prefix_cache_would_hit_tokens_total"]
    assert hits == {("0.5",): 100.5, ("1",): 200.0, ("2",): 300.0, ("4",): 400.0, ("8",): 500.0}
    assert samples["minisgl_prefix_cache_would_query_tokens_total"] == {(): 1000.0}


def test_health_says_that_the_server_drains() -> None:
    state = make_state(engine=engine_with(STATS))
    state.gate.drain()
    response = ask(make_app(state), "GET", "/health")
    assert (response.status_code, response.json()) == (503, {"status": "draining"})


def test_whoever_needs_the_engine_is_told_why_it_is_not_there() -> None:
    for state, code in ((make_state(), "model_loading"), (make_state(error="the engine died"), "engine_dead")):
        with pytest.raises(ApiError) as caught:
            state.ready_engine()
        assert (caught.value.status, caught.value.code) == (503, code)


def test_every_family_is_shown_from_the_first_scrape_on_but_those_that_have_no_label_yet() -> None:
    names = set(scrape(make_state(engine=engine_with(STATS))))
    for family in FAMILIES:
        suffix = {"gauge": "", "counter": "_total", "histogram": "_bucket"}[family.kind]
        shown = f"minisgl_{family.name}{suffix}" in names
        assert shown == (family.kind != "counter" or family.label in (None, "cause")), family


def test_every_cause_is_shown_from_the_first_scrape_on() -> None:
    samples = scrape(make_state(engine=engine_with(replace(STATS, causes={"hit": 750, "evicted": 32}))))
    causes = {**dict.fromkeys(CAUSES, 0), "hit": 750, "evicted": 32}
    assert samples["minisgl_prompt_tokens_by_cause_total"] == {(cause,): tokens for cause, tokens in causes.items()}


def test_the_engines_numbers_are_shown() -> None:
    samples = scrape(make_state(engine=engine_with(STATS)))
    assert samples["minisgl_engine_up"] == {(): 1}
    assert samples["minisgl_num_requests_running"] == {(): 3}
    assert samples["minisgl_num_requests_waiting"] == {(): 2}
    assert samples["minisgl_kv_cache_tokens"] == {("free",): 400, ("cached",): 400, ("in_use",): 800}
    assert samples["minisgl_kv_cache_usage_perc"] == {(): 0.5}
    assert samples["minisgl_prefix_cache_queries_total"] == {(): 1000}
    assert samples["minisgl_prefix_cache_hits_total"] == {(): 750}
    assert samples["minisgl_prefix_cache_evicted_tokens_total"] == {(): 32}
    assert samples["minisgl_prompt_tokens_computed_total"] == {(): 250}
    assert samples["minisgl_num_preemptions_total"] == {(): 5}
    assert samples["minisgl_engine_steps_total"] == {(): 40}
    assert samples["minisgl_engine_host_seconds_total"] == {(): 0.5}


def test_the_servers_numbers_are_shown() -> None:
    state = make_state()
    state.metrics.prompt_tokens, state.metrics.generated_tokens = 37, 8
    state.metrics.finished.update({"stop": 2, "length": 1})
    state.metrics.aborted.update({"disconnect": 4})
    state.metrics.responses.update({200: 3, 429: 1})
    state.metrics.token_gap_s.observe(0.03, 7)
    samples = scrape(state)
    assert samples["minisgl_prompt_tokens_total"] == {(): 37}
    assert samples["minisgl_generation_tokens_total"] == {(): 8}
    assert samples["minisgl_request_success_total"] == {("stop",): 2, ("length",): 1}
    assert samples["minisgl_requests_aborted_total"] == {("disconnect",): 4}
    assert samples["minisgl_http_responses_total"] == {("200",): 3, ("429",): 1}
    assert samples["minisgl_max_sequences_open"] == {(): 4 + 1024}
    gaps = samples["minisgl_inter_token_latency_seconds_bucket"]
    assert (gaps[("0.02",)], gaps[("0.03",)], gaps[("+Inf",)]) == (0, 7, 7)
    assert samples["minisgl_inter_token_latency_seconds_sum"] == {(): pytest.approx(0.21)}


def test_counting_goes_on_from_scrape_to_scrape() -> None:
    state = make_state()
    scrape(state)
    assert scrape(state)["minisgl_http_responses_total"] == {("200",): 1}


async def _never() -> EngineStats:
    await asyncio.Event().wait()
    raise AssertionError


async def _dead() -> EngineStats:
    raise EngineDied("the engine died")


@pytest.mark.parametrize("stats", [_never, _dead])
def test_an_engine_that_does_not_answer_is_down_and_the_rest_is_shown(
    stats: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "ENGINE_TIMEOUT_S", 0.01)
    samples = scrape(make_state(engine=engine_with(stats)))
    assert samples["minisgl_engine_up"] == {(): 0}
    assert "minisgl_num_requests_running" not in samples
    assert samples["minisgl_num_sequences_open"] == {(): 0}


def test_open_metrics_is_given_when_it_is_asked_for() -> None:
    response = ask(make_app(), "GET", "/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert response.headers["content-type"].startswith("application/openmetrics-text")
    assert response.text.endswith("# EOF\n")


def test_without_metrics_there_are_none() -> None:
    response = ask(make_app(make_state(ServerConfig(metrics=False))), "GET", "/metrics")
    assert response.status_code == 404
    assert "--no-metrics" in response.json()["error"]["message"]

"""GET /metrics: the server's counters and the engine's, as Prometheus reads them.

Names follow vLLM's where the meaning is the same, with `minisgl_` for `vllm:`; `FAMILIES` is the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from minisgl.core import CAPACITY_FACTORS, CAUSES
from minisgl.server.histogram import Histogram

if TYPE_CHECKING:
    from minisgl.message import EngineStats
    from minisgl.server.state import ServerState

Values = Mapping[str, float]  # by the family's label, if it has one
CAPACITIES = [f"{factor:g}" for factor in CAPACITY_FACTORS]


@dataclass(frozen=True)
class Family:
    """One metric. vllm: vLLM's name for the same thing, None where it has none. label: beside model_name."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    vllm: str | None = None
    label: str | None = None


FAMILIES = (
    Family("engine_up", "gauge", "1 when the engine answered this scrape"),
    Family("num_requests_running", "gauge", "Sequences that run.", "vllm:num_requests_running"),
    Family("num_requests_waiting", "gauge", "Sequences that wait to be admitted.", "vllm:num_requests_waiting"),
    Family("num_sequences_open", "gauge", "Sequences that the server has let in and not answered yet."),
    Family("max_sequences_open", "gauge", "How many it lets in: --max-running and --max-queued together."),
    Family(
        "kv_cache_usage_perc", "gauge", "Share of the KV pool that requests hold; 1 is all.", "vllm:kv_cache_usage_perc"
    ),
    Family("kv_cache_tokens", "gauge", "Tokens of the KV pool: free, cached and evictable, in use.", label="state"),
    Family(
        "prefix_cache_queries", "counter", "Prompt tokens looked up in the prefix cache.", "vllm:prefix_cache_queries"
    ),
    Family("prefix_cache_hits", "counter", "Prompt tokens found there.", "vllm:prefix_cache_hits"),
    Family("prefix_cache_evicted_tokens", "counter", "Cached tokens that had to go for others."),
    Family(
        "prefix_cache_would_hit_tokens",
        "counter",
        "Prompt tokens that a KV pool so many times as large would have found, by estimate.",
        label="capacity",
    ),
    Family("prefix_cache_would_query_tokens", "counter", "Prompt tokens of which that is said; 0 with --no-explain."),
    Family(
        "prompt_tokens_by_cause",
        "counter",
        "Prompt tokens of admitted requests, by why they were computed, or not.",
        label="cause",
    ),
    Family("num_preemptions", "counter", "Times that a running sequence gave up its pages.", "vllm:num_preemptions"),
    Family("prompt_tokens_computed", "counter", "Prompt tokens that the engine computed."),
    Family("engine_steps", "counter", "Batches that the engine has launched."),
    Family("engine_host_seconds", "counter", "The host's work for them besides the model's kernels."),
    Family(
        "prompt_tokens", "counter", "Prompt tokens of accepted requests, cached ones included.", "vllm:prompt_tokens"
    ),
    Family("generation_tokens", "counter", "Generated tokens.", "vllm:generation_tokens"),
    Family("request_success", "counter", "Finished sequences.", "vllm:request_success", "finished_reason"),
    Family("requests_aborted", "counter", "Requests that did not come to their end.", label="reason"),
    Family("http_responses", "counter", "HTTP responses; 499: the client left before one.", label="status"),
    Family(
        "time_to_first_token_seconds",
        "histogram",
        "From the request's arrival to its first token.",
        "vllm:time_to_first_token_seconds",
    ),
    Family(
        "inter_token_latency_seconds",
        "histogram",
        "Between two tokens of a sequence.",
        "vllm:inter_token_latency_seconds",
    ),
    Family(
        "e2e_request_latency_seconds",
        "histogram",
        "From the request's arrival to the end of its answer.",
        "vllm:e2e_request_latency_seconds",
    ),
    Family(
        "request_queue_time_seconds", "histogram", "Spent waiting in the engine.", "vllm:request_queue_time_seconds"
    ),
    Family("request_prompt_tokens", "histogram", "Prompt tokens of a request.", "vllm:request_prompt_tokens"),
    Family(
        "request_generation_tokens", "histogram", "Generated tokens of a request.", "vllm:request_generation_tokens"
    ),
)


def expose(state: ServerState, stats: EngineStats | None, accept: str) -> tuple[bytes, str]:
    """The text and its media type, in the form that `accept` asks for. stats None: the engine did not answer."""
    registry = CollectorRegistry()
    registry.register(_Families(state, stats))
    ProcessCollector(registry=registry)
    encode, media_type = choose_encoder(accept)
    return encode(registry), media_type


class _Families(Collector):
    def __init__(self, state: ServerState, stats: EngineStats | None) -> None:
        self._model_name = state.model_name
        self._values = {**_of_server(state), **_of_engine(stats)}
        self._histograms = _histograms(state)

    def collect(self) -> Iterator[Metric]:
        for family in FAMILIES:
            if family.kind == "histogram":
                yield self._histogram(family, self._histograms[family.name])
            elif (values := self._values.get(family.name)) is not None:
                yield self._numbers(family, values)

    def _numbers(self, family: Family, values: Values) -> Metric:
        labels = ["model_name", *([family.label] if family.label else [])]
        make = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
        metric = make(f"minisgl_{family.name}", family.help, labels=labels)
        for label, value in values.items():
            metric.add_metric([self._model_name, *([label] if family.label else [])], value)
        return metric

    def _histogram(self, family: Family, histogram: Histogram) -> Metric:
        metric = HistogramMetricFamily(f"minisgl_{family.name}", family.help, labels=["model_name"])
        metric.add_metric([self._model_name], histogram.cumulative(), histogram.total)
        return metric


def _of_server(state: ServerState) -> dict[str, Values]:
    metrics = state.metrics
    return {
        "num_sequences_open": {"": state.gate.num_open},
        "max_sequences_open": {"": state.gate.capacity},
        "prompt_tokens": {"": metrics.prompt_tokens},
        "generation_tokens": {"": metrics.generated_tokens},
        "request_success": metrics.finished,
        "requests_aborted": metrics.aborted,
        "http_responses": {str(status): count for status, count in metrics.responses.items()},
    }


def _of_engine(stats: EngineStats | None) -> dict[str, Values]:
    if stats is None:
        return {"engine_up": {"": 0}}
    pool, free = stats.num_pages * stats.page_size, stats.free_pages * stats.page_size
    in_use = pool - free - stats.evictable_tokens
    return {
        "engine_up": {"": 1},
        "num_requests_running": {"": stats.num_running},
        "num_requests_waiting": {"": stats.num_waiting},
        "kv_cache_usage_perc": {"": in_use / max(pool, 1)},
        "kv_cache_tokens": {"free": free, "cached": stats.evictable_tokens, "in_use": in_use},
        "prefix_cache_queries": {"": stats.queried_tokens},
        "prefix_cache_hits": {"": stats.hit_tokens},
        "prefix_cache_evicted_tokens": {"": stats.evicted_tokens},
        "prompt_tokens_by_cause": {cause: stats.causes.get(cause, 0) for cause in CAUSES},
        "num_preemptions": {"": stats.num_retracted},
        "prompt_tokens_computed": {"": stats.computed_tokens},
        "engine_steps": {"": stats.num_batches},
        "engine_host_seconds": {"": stats.host_s},
        "prefix_cache_would_hit_tokens": dict(zip(CAPACITIES, stats.capacity_hits, strict=False)),  # none, or all
        "prefix_cache_would_query_tokens": {"": stats.capacity_queried},
    }


def _histograms(state: ServerState) -> dict[str, Histogram]:
    metrics = state.metrics
    return {
        "time_to_first_token_seconds": metrics.first_token_s,
        "inter_token_latency_seconds": metrics.token_gap_s,
        "e2e_request_latency_seconds": metrics.total_s,
        "request_queue_time_seconds": metrics.queue_s,
        "request_prompt_tokens": metrics.request_prompt_tokens,
        "request_generation_tokens": metrics.request_generated_tokens,
    }

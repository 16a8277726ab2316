from __future__ import annotations

import os
import sys
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http import trace_exporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from minisgl.core import Explanation
from minisgl.server.explaining import Reasons
from minisgl.server.records import RequestRecord
from minisgl.server.tracing import Tracing, start_tracing

TRACE_ID, PARENT_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def record(**changes: Any) -> RequestRecord:
    fields: dict[str, Any] = {
        "method": "POST",
        "path": "/v1/chat/completions",
        "endpoint": "/v1/chat/completions",
        "started_at": 1000.0,
        "total_s": 2.5,
        "status": 200,
        "prompt_tokens": 37,
        "cached_tokens": 36,
        "generated_tokens": 8,
        "first_token_s": 0.25,
        "finish_reason": "stop,length",
    }
    return RequestRecord("req-1", **{**fields, **changes})


def spans_of(*records: RequestRecord) -> Any:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing = Tracing(provider, "a-model")
    for each in records:
        tracing(each)
    tracing.close()
    return exporter.get_finished_spans()


def test_a_request_is_a_span_with_the_names_of_the_genai_conventions() -> None:
    (span,) = spans_of(record())
    assert span.name == "chat a-model"
    assert (span.start_time, span.end_time) == (1000 * 10**9, 1002_500_000_000)
    attributes = dict(span.attributes)
    assert attributes["gen_ai.operation.name"] == "chat"
    assert attributes["gen_ai.request.model"] == "a-model"
    assert attributes["gen_ai.usage.input_tokens"] == 37
    assert attributes["gen_ai.usage.output_tokens"] == 8
    assert attributes["gen_ai.usage.cache_read.input_tokens"] == 36
    assert attributes["gen_ai.response.finish_reasons"] == ("stop", "length")
    assert attributes["gen_ai.response.time_to_first_chunk"] == 0.25
    assert "minisgl.queue_time" not in attributes
    assert span.status.status_code is StatusCode.UNSET


def test_a_span_says_why_prompt_tokens_were_computed() -> None:
    (span,) = spans_of(record(reasons=Reasons.of(Explanation(hit=36, never_seen=1, left_at=36))))
    attributes = {name: value for name, value in span.attributes.items() if name.startswith("minisgl.")}
    assert attributes == {
        "minisgl.prompt_tokens.hit": 36,
        "minisgl.prompt_tokens.never_seen": 1,
        "minisgl.prefix_left_at": 36,
    }


def test_a_clients_trace_goes_on_in_ours() -> None:
    (span,) = spans_of(record(trace_parent=f"00-{TRACE_ID}-{PARENT_ID}-01"))
    assert f"{span.context.trace_id:032x}" == TRACE_ID
    assert f"{span.parent.span_id:016x}" == PARENT_ID


def test_a_malformed_trace_of_the_client_begins_a_new_one() -> None:
    (span,) = spans_of(record(trace_parent="nonsense"))
    assert span.parent is None


def test_a_failure_is_marked_and_other_requests_have_no_span() -> None:
    failed, refused = spans_of(
        record(finish_reason="error"), record(endpoint=None), record(status=503, finish_reason=None)
    )
    assert failed.status.status_code is refused.status.status_code is StatusCode.ERROR


def test_spans_are_sent_to_the_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []

    def export(exporter: Any, spans: Any) -> Any:
        sent.append((exporter._endpoint, [span.name for span in spans]))
        return trace_exporter.SpanExportResult.SUCCESS

    monkeypatch.setattr(trace_exporter.OTLPSpanExporter, "export", export)
    tracing = start_tracing("http://collector:4318/", "a-model")
    tracing(record())
    tracing.close()
    assert sent == [("http://collector:4318/v1/traces", ["chat a-model"])]


def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(ValueError, match=r"minisgl\[otel\]"):
        start_tracing("http://collector:4318", "a-model")


ADDRESS = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """The exporter and the spans of each batch that was sent, with no variable of OpenTelemetry set."""
    batches: list[tuple[Any, Any]] = []

    def export(exporter: Any, spans: Any) -> Any:
        batches.append((exporter, spans))
        return trace_exporter.SpanExportResult.SUCCESS

    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(trace_exporter.OTLPSpanExporter, "export", export)
    return batches


def send(monkeypatch: pytest.MonkeyPatch, endpoint: str | None, variables: dict[str, str]) -> None:
    """One request under these variables."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    tracing = start_tracing(endpoint, "a-model")
    if tracing is not None:
        tracing(record())
        tracing.close()


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ({}, "minisgl"),
        ({"OTEL_SERVICE_NAME": ""}, "minisgl"),
        ({"OTEL_SERVICE_NAME": "mine"}, "mine"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=mine,deployment.environment.name=test"}, "mine"),
        ({"OTEL_SERVICE_NAME": "mine", "OTEL_RESOURCE_ATTRIBUTES": "service.name=other"}, "mine"),
    ],
)
def test_the_environment_names_the_service(
    sent: list[Any], monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], name: str
) -> None:
    send(monkeypatch, "http://collector:4318", variables)
    resource = sent[0][1][0].resource.attributes
    assert resource["service.name"] == name
    assert ("deployment.environment.name" in resource) == ("deployment" in str(variables))
    assert resource["telemetry.sdk.name"] == "opentelemetry"


@pytest.mark.parametrize(
    ("endpoint", "variables", "address"),
    [
        (None, ADDRESS, "http://collector:4318/v1/traces"),
        (None, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://c/own"}, "https://c/own"),
        (None, {**ADDRESS, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://c/own"}, "https://c/own"),
        (
            "http://flag:1",
            {**ADDRESS, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://c/own"},
            "http://flag:1/v1/traces",
        ),
        ("http://flag:1", {"OTEL_TRACES_EXPORTER": "none"}, "http://flag:1/v1/traces"),
    ],
)
def test_a_flag_goes_before_the_environment_in_saying_where_spans_go(
    sent: list[Any], monkeypatch: pytest.MonkeyPatch, endpoint: str | None, variables: dict[str, str], address: str
) -> None:
    send(monkeypatch, endpoint, variables)
    assert [exporter._endpoint for exporter, _ in sent] == [address]


@pytest.mark.parametrize(
    ("endpoint", "variables", "warning"),
    [
        (None, {}, ""),
        (None, {"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, ""),
        (None, {**ADDRESS, "OTEL_TRACES_EXPORTER": "none"}, ""),
        (None, {**ADDRESS, "OTEL_SDK_DISABLED": "TRUE"}, ""),
        ("http://flag:1", {"OTEL_SDK_DISABLED": "true"}, "OTEL_SDK_DISABLED is set"),
        (None, {"OTEL_EXPORTER_OTLP_ENDPOINT": "c:4317"}, "OTEL_EXPORTER_OTLP_ENDPOINT='c:4317' is not an http"),
        (None, {**ADDRESS, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_PROTOCOL='grpc' is not supp"),
        (None, {**ADDRESS, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json"}, "TRACES_PROTOCOL='http/json' is not"),
        (None, {**ADDRESS, "OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER='zipkin' is not supported"),
    ],
)
def test_there_are_no_traces_where_the_environment_says_so_or_cannot_be_obeyed(
    sent: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    endpoint: str | None,
    variables: dict[str, str],
    warning: str,
) -> None:
    send(monkeypatch, endpoint, variables)
    assert sent == []
    assert warning in caplog.text
    assert bool(caplog.text) == bool(warning)


@pytest.mark.parametrize(
    ("variables", "timeout"),
    [
        ({}, 3.0),
        ({"OTEL_EXPORTER_OTLP_TIMEOUT": "7"}, 7.0),
        ({"OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "0.5", "OTEL_EXPORTER_OTLP_TIMEOUT": "7"}, 0.5),
    ],
)
def test_the_time_out_and_headers_are_those_of_the_environment(
    sent: list[Any], monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], timeout: float
) -> None:
    send(monkeypatch, "http://collector:4318", {**variables, "OTEL_EXPORTER_OTLP_HEADERS": "key=secret"})
    client = sent[0][0]._client
    assert client._timeout == timeout
    assert client._headers["key"] == "secret"


@pytest.mark.parametrize(("sampler", "num_spans"), [("always_on", 1), ("always_off", 0), ("traceidratio", 0)])
def test_the_sampler_is_that_of_the_environment(
    sent: list[Any], monkeypatch: pytest.MonkeyPatch, sampler: str, num_spans: int
) -> None:
    variables = {"OTEL_TRACES_SAMPLER": sampler, "OTEL_TRACES_SAMPLER_ARG": "0"}
    send(monkeypatch, "http://collector:4318", variables)
    assert sum(len(spans) for _, spans in sent) == num_spans


def test_batches_are_as_large_as_the_environment_says(sent: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")
    tracing = start_tracing("http://collector:4318", "a-model")
    assert tracing is not None
    for _ in range(3):
        tracing(record())
    tracing.close()
    assert [len(spans) for _, spans in sent] == [1, 1, 1]


def test_an_environment_that_asks_for_traces_ends_no_server_that_has_no_extra(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    assert start_tracing(None, "a-model", ADDRESS) is None
    assert "no traces: OTEL_EXPORTER_OTLP_ENDPOINT needs the extra `otel`" in caplog.text

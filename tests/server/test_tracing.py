from __future__ import annotations

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

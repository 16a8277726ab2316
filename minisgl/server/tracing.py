"""A span for each request that generated, sent to an OpenTelemetry collector. Needs the extra `otel`.

Spans are made when a request is over, from its record, so that tracing costs nothing while tokens flow. Attributes are
named after the GenAI conventions (https://github.com/open-telemetry/semantic-conventions-genai) where there is one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minisgl.server.records import RequestRecord

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

NS = 10**9
EXPORT_TIMEOUT_S = 3.0  # for a batch, its retries included; so long may the end of the server wait
SPAN_OPERATIONS = {"/v1/chat/completions": "chat"}  # every other one completes a text


class Tracing:
    """A hook of the request book. `close` sends what is left."""

    def __init__(self, provider: TracerProvider, model_name: str) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer = provider.get_tracer("minisgl")
        self._propagator = TraceContextTextMapPropagator()
        self._model_name = model_name

    def __call__(self, record: RequestRecord) -> None:
        from opentelemetry.trace import SpanKind, Status, StatusCode

        if record.endpoint is None:
            return
        operation = SPAN_OPERATIONS.get(record.endpoint, "text_completion")
        start = int(record.started_at * NS)
        span = self._tracer.start_span(
            f"{operation} {self._model_name}",
            context=self._propagator.extract({"traceparent": record.trace_parent} if record.trace_parent else {}),
            kind=SpanKind.SERVER,
            start_time=start,
            attributes=_attributes(record, operation, self._model_name),
        )
        if record.finish_reason == "error" or record.status >= 500:
            span.set_status(Status(StatusCode.ERROR))
        span.end(start + int(record.total_s * NS))

    def close(self) -> None:
        self._provider.shutdown()


def start_tracing(endpoint: str, model_name: str) -> Tracing:
    """Spans go to `endpoint`/v1/traces, in batches, from a thread. ValueError when the extra is missing."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        raise ValueError(f"--otlp-endpoint needs the extra `otel`: pip install 'minisgl[otel]' ({error})") from error
    provider = TracerProvider(resource=Resource.create({"service.name": "minisgl"}))
    exporter = OTLPSpanExporter(f"{endpoint.rstrip('/')}/v1/traces", timeout=EXPORT_TIMEOUT_S)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return Tracing(provider, model_name)


def _attributes(record: RequestRecord, operation: str, model_name: str) -> dict[str, Any]:
    """Those that are known; None is no value of an attribute."""
    attributes = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": "minisgl",
        "gen_ai.request.model": model_name,
        "gen_ai.response.model": model_name,
        "gen_ai.response.id": record.request_id,
        "gen_ai.response.finish_reasons": (record.finish_reason or "error").split(","),
        "gen_ai.response.time_to_first_chunk": record.first_token_s,
        "gen_ai.usage.input_tokens": record.prompt_tokens,
        "gen_ai.usage.output_tokens": record.generated_tokens,
        "gen_ai.usage.cache_read.input_tokens": record.cached_tokens,
        "http.request.method": record.method,
        "http.response.status_code": record.status,
        "url.path": record.path,
        "minisgl.queue_time": record.queue_s,
        **_reasons(record),
    }
    return {name: value for name, value in attributes.items() if value is not None}


def _reasons(record: RequestRecord) -> dict[str, Any]:
    """Prompt tokens by cause, those of none left out."""
    if record.reasons is None:
        return {}
    causes = {f"minisgl.prompt_tokens.{cause}": tokens or None for cause, tokens in record.reasons.causes.items()}
    return {**causes, "minisgl.prefix_left_at": record.reasons.left_at}

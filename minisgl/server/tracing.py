"""A span for each request that generated, sent to an OpenTelemetry collector. Needs the extra `otel`.

Spans are made when a request is over, from its record, so that tracing costs nothing while tokens flow. Attributes are
named after the GenAI conventions (https://github.com/open-telemetry/semantic-conventions-genai) where there is one.

OpenTelemetry's environment variables go before defaults of ours, and flags before them, but for OTEL_SDK_DISABLED:
https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/. Most are read by its SDK; here are
those for which we have a default, or which decide whether there are traces at all.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from minisgl.server.records import RequestRecord
from minisgl.utils.logging import get_logger

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

NS = 10**9
EXPORT_TIMEOUT_S = 3.0  # for a batch, its retries included; so long may the end of the server wait
SERVICE_NAME = "minisgl"
logger = get_logger(__name__)
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


def start_tracing(endpoint: str | None, model_name: str, environ: Mapping[str, str] = os.environ) -> Tracing | None:
    """Spans go to `endpoint`/v1/traces or where `environ` says, in batches, from a thread; None: there are no traces.

    ValueError when `endpoint` is given and the extra is missing, or variables do not fit together. What the environment
    alone asks for and cannot be is a warning.
    """
    if _is("true", environ.get("OTEL_SDK_DISABLED")):
        if endpoint is not None:
            logger.warning("OTEL_SDK_DISABLED is set, so there are no traces")
        return None
    if endpoint is None:
        variable = _endpoint_variable(environ)
        if variable is None:
            return None
        if (fault := _fault_of(variable, environ)) is not None:
            logger.warning("no traces: %s", fault)
            return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        needed = f"needs the extra `otel`: pip install 'minisgl[otel]' ({error})"
        if endpoint is not None:
            raise ValueError(f"--otlp-endpoint {needed}") from error
        logger.warning("no traces: %s %s", variable, needed)
        return None
    named = OTELResourceDetector().detect().attributes.get("service.name")
    provider = TracerProvider(resource=Resource.create({} if named else {"service.name": SERVICE_NAME}))
    has_timeout = _first(environ, "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT")
    exporter = OTLPSpanExporter(
        f"{endpoint.rstrip('/')}/v1/traces" if endpoint is not None else None,
        timeout=None if has_timeout else EXPORT_TIMEOUT_S,
    )
    provider.add_span_processor(BatchSpanProcessor(exporter))
    logger.info("traces go to %s", endpoint or f"the address in {variable}")
    return Tracing(provider, model_name)


def _endpoint_variable(environ: Mapping[str, str]) -> str | None:
    """Name of the variable that says where traces go, unless another one says that there are none."""
    if _is("none", environ.get("OTEL_TRACES_EXPORTER")):
        return None
    return _first(environ, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def _fault_of(endpoint_variable: str, environ: Mapping[str, str]) -> str | None:
    """Why traces cannot go where the environment says; None if they can."""
    if not environ[endpoint_variable].strip().startswith(("http://", "https://")):
        return f"{endpoint_variable}={environ[endpoint_variable]!r} is not an http:// or https:// address"
    exporters = environ.get("OTEL_TRACES_EXPORTER", "").strip() or "otlp"
    if "otlp" not in (name.strip() for name in exporters.split(",")):
        return f"OTEL_TRACES_EXPORTER={exporters!r} is not supported, only 'otlp'"
    protocol = _first(environ, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    if protocol is not None and environ[protocol].strip() != "http/protobuf":
        return f"{protocol}={environ[protocol]!r} is not supported, only 'http/protobuf'"
    return None


def _first(environ: Mapping[str, str], *names: str) -> str | None:
    """The first name that is set; an empty variable counts as unset."""
    return next((name for name in names if environ.get(name, "").strip()), None)


def _is(word: str, value: str | None) -> bool:
    return value is not None and value.strip().lower() == word


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

"""One line a request: who asked what, how many tokens it took, and where the time went."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from minisgl.server.records import RequestRecord
from minisgl.utils.logging import get_logger

logger = get_logger(__name__)
PROBES = frozenset({"/health", "/metrics"})  # asked every few seconds by machines: shown at level DEBUG


def log_request(record: RequestRecord) -> None:
    """A hook of the request book. The record's numbers go along as `fields`, for a formatter that wants them."""
    log = logger.debug if record.path in PROBES else logger.info
    log(
        "%s %s %d %s",
        record.method,
        quote(record.path),
        record.status,
        _Line(record),
        extra={"fields": fields_of(record)},
    )


def fields_of(record: RequestRecord) -> dict[str, Any]:
    """Names and values for a machine; times in seconds, to a microsecond."""
    fields: dict[str, Any] = {
        "request_id": record.request_id,
        "method": record.method,
        "path": record.path,
        "status": record.status,
        "total_s": _rounded(record.total_s),
    }
    if record.endpoint is not None:
        fields |= {
            "prompt_tokens": record.prompt_tokens,
            "cached_tokens": record.cached_tokens,
            "generated_tokens": record.generated_tokens,
            "queue_s": _rounded(record.queue_s),
            "first_token_s": _rounded(record.first_token_s),
            "finish_reason": record.finish_reason,
        }
    return fields


class _Line:
    """The same for people; made only when somebody reads it."""

    def __init__(self, record: RequestRecord) -> None:
        self._record = record

    def __str__(self) -> str:
        record = self._record
        words = [record.request_id]
        if record.endpoint is not None:
            words += [
                f"prompt={record.prompt_tokens} cached={record.cached_tokens} generated={record.generated_tokens}",
                f"queue={_milliseconds(record.queue_s)} first={_milliseconds(record.first_token_s)}",
                f"finish={record.finish_reason}",
            ]
        return " ".join([*words, f"total={_milliseconds(record.total_s)}"])


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.1f}ms"

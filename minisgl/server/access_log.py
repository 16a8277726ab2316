"""One line a request: who asked what, how many tokens it took, and where the time went."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from minisgl.server.explaining import Reasons
from minisgl.server.records import RequestRecord
from minisgl.utils.logging import get_logger

logger = get_logger(__name__)
_PLAIN = frozenset({"hit", "last_token"})  # the first is counted by cached=, the second is one
PROBES = frozenset({"/health", "/metrics"})  # asked every few seconds by machines: shown at level DEBUG
WATCHED = "/inspect/"  # and so are those below it, for people who look


def log_request(record: RequestRecord) -> None:
    """A hook of the request book. The record's numbers go along as `fields`, for a formatter that wants them."""
    log = logger.debug if record.path in PROBES or record.path.startswith(WATCHED) else logger.info
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
    return fields if record.reasons is None else fields | _fields_of_reasons(record.reasons)


def _fields_of_reasons(reasons: Reasons) -> dict[str, Any]:
    """Of several prompts only the causes are known."""
    fields = {
        "causes": {cause: tokens for cause, tokens in reasons.causes.items() if tokens},
        "left_at": reasons.left_at,
        "evicted_s": _rounded(reasons.evicted_s),
        "evicted_tokens": reasons.evicted_tokens,
    }
    return {name: value for name, value in fields.items() if value is not None}


class _Line:
    """The same for people; made only when somebody reads it."""

    def __init__(self, record: RequestRecord) -> None:
        self._record = record

    def __str__(self) -> str:
        record = self._record
        words = [record.request_id]
        if record.endpoint is not None:
            words += [
                f"prompt={record.prompt_tokens} cached={record.cached_tokens}",
                *_reasons(record),
                f"generated={record.generated_tokens}",
                f"queue={_milliseconds(record.queue_s)} first={_milliseconds(record.first_token_s)}",
                f"finish={record.finish_reason}",
            ]
        return " ".join([*words, f"total={_milliseconds(record.total_s)}"])


def _reasons(record: RequestRecord) -> list[str]:
    """Why prompt tokens were computed, but for what every prompt has; and where the prompt left what came closest."""
    reasons = record.reasons
    if reasons is None:
        return []
    words = {cause: f"{cause}={tokens}" for cause, tokens in reasons.causes.items() if tokens and cause not in _PLAIN}
    if "evicted" in words and reasons.evicted_s is not None:
        words["evicted"] += f"({_ago(reasons.evicted_s)} ago)"
    is_left = reasons.left_at is not None and reasons.left_at < record.prompt_tokens
    return [*words.values(), *([f"left_at={reasons.left_at}"] if is_left else [])]


def _ago(seconds: float) -> str:
    return f"{seconds:.0f}s" if seconds < 600 else f"{seconds / 60:.0f}min"


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.1f}ms"

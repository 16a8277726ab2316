"""What is known of each HTTP request: made when it comes, told to hooks when it ends."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from minisgl.server.explaining import Reasons

CLIENT_GONE = 499  # as nginx logs it: nobody was there to be answered
MAX_OVER = 512


@dataclass(slots=True)
class RequestRecord:
    """One request. Times are in seconds from `started` (`time.perf_counter`); started_at is in seconds since 1970.

    The fields from `endpoint` on belong to a request that generates, and keep their defaults for others.
    finish_reason: the choices' own, joined by commas, or why it did not finish: disconnect, timeout, abort, error.
    uids: by which the engine knows its choices. reasons: why its prompts were computed, where the engine says so.
    """

    request_id: str
    method: str = ""
    path: str = ""
    trace_parent: str | None = None
    started_at: float = field(default_factory=time.time)
    started: float = field(default_factory=time.perf_counter)
    status: int = CLIENT_GONE
    total_s: float = 0.0
    endpoint: str | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    queue_s: float | None = None
    first_token_s: float | None = None
    finish_reason: str | None = None
    uids: tuple[int, ...] = ()
    reasons: Reasons | None = None

    def note_queue(self, seconds: float | None) -> None:
        """One of its choices waited that long for room; None: it never ran, or it is not known. The longest counts."""
        if seconds is not None:
            self.queue_s = max(seconds, self.queue_s or 0.0)

    def note_reasons(self, reasons: Reasons) -> None:
        """Of one of its prompts."""
        self.reasons = reasons if self.reasons is None else self.reasons.plus(reasons)


CloseHook = Callable[[RequestRecord], None]


class RequestBook:
    """The requests that are open, by their id. Belongs to the event loop's thread.

    over: the last ones that have generated and are over, the oldest first. texts_since: of those that started before,
    no texts are kept.
    """

    def __init__(self, hooks: Iterable[CloseHook]) -> None:
        self.over: deque[RequestRecord] = deque(maxlen=MAX_OVER)
        self.texts_since = 0.0
        self._hooks = tuple(hooks)
        self._open: dict[str, RequestRecord] = {}

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[RequestRecord]:
        return iter(self._open.values())

    def open(self, record: RequestRecord) -> None:
        self._open[record.request_id] = record

    def find(self, request_id: str) -> RequestRecord | None:
        return self._open.get(request_id)

    def forget_texts(self) -> None:
        """Something was purged, which any text of until now may be a piece of."""
        self.texts_since = time.perf_counter()
        for record in (*self.over, *self):
            if record.reasons is not None:
                record.reasons = replace(record.reasons, window=None)

    def close(self, record: RequestRecord) -> None:
        """The request is over: forget it, and tell the hooks."""
        del self._open[record.request_id]
        record.total_s = time.perf_counter() - record.started
        if record.endpoint is not None:
            self.over.append(record)
        for hook in self._hooks:
            hook(record)

"""What the server counts. Plain numbers, because some of them change with every token; `exposition` shows them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from minisgl.server.histogram import Histogram
from minisgl.server.recent import Recent
from minisgl.server.records import RequestRecord

# Upper bounds of the buckets: seconds, seconds a token, tokens.
LATENCY_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 40, 80, 160, 640, 2560)
TOKEN_GAP_S = (0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.5, 1, 2, 5, 10, 40)
TOKENS = tuple(2**power for power in range(18))


def _latency() -> Histogram:
    return Histogram(LATENCY_S)


@dataclass(slots=True)
class Metrics:
    """Counters since the start of the process. Belongs to the event loop's thread.

    finished: choices by finish reason. aborted: requests by the reason for which they did not finish.
    responses: HTTP responses by status. recent: of latencies in about the last minute.
    """

    prompt_tokens: int = 0
    generated_tokens: int = 0
    finished: Counter[str] = field(default_factory=Counter)
    aborted: Counter[str] = field(default_factory=Counter)
    responses: Counter[int] = field(default_factory=Counter)
    first_token_s: Histogram = field(default_factory=_latency)
    token_gap_s: Histogram = field(default_factory=lambda: Histogram(TOKEN_GAP_S))
    total_s: Histogram = field(default_factory=_latency)
    queue_s: Histogram = field(default_factory=_latency)
    request_prompt_tokens: Histogram = field(default_factory=lambda: Histogram(TOKENS))
    request_generated_tokens: Histogram = field(default_factory=lambda: Histogram(TOKENS))
    recent: Recent = field(init=False)

    def __post_init__(self) -> None:
        names = ("first_token_s", "token_gap_s", "total_s", "queue_s")
        self.recent = Recent({name: getattr(self, name) for name in names})

    def count(self, record: RequestRecord) -> None:
        """A request is over."""
        self.responses[record.status] += 1
        self.recent.note()
        if record.endpoint is None:
            return
        self.total_s.observe(record.total_s)
        self.request_prompt_tokens.observe(record.prompt_tokens)
        self.request_generated_tokens.observe(record.generated_tokens)
        if record.queue_s is not None:
            self.queue_s.observe(record.queue_s)

"""Follows one request that generates, for its record and the metrics. `deltas` runs with every token: it is cheap."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING

from minisgl.core import Explanation
from minisgl.llm.explained import Explained
from minisgl.llm.stream import choices_of
from minisgl.server.explaining import Reasons
from minisgl.server.metrics import Metrics
from minisgl.server.records import RequestBook, RequestRecord

if TYPE_CHECKING:
    from minisgl.llm import Delta, Output
    from minisgl.llm.client import Prepared
    from minisgl.server.serving import Ending


class Observer:
    """The RequestObserver of `serving`. keep_text: the record is to have what can be shown of a prompt's text."""

    def __init__(self, book: RequestBook, metrics: Metrics, keep_text: bool = False) -> None:
        self._book = book
        self._metrics = metrics
        self._keep_text = keep_text
        self._prepared: Sequence[Prepared] = ()
        self._record: RequestRecord | None = None
        self._last_token: dict[tuple[int, int], float] = {}

    def started(self, request_id: str, endpoint: str, prepared: Sequence[Prepared]) -> None:
        """The request was accepted. Times count from when its first byte came, tokenizing included."""
        record = self._book.find(request_id) or RequestRecord(request_id)
        record.endpoint = endpoint
        record.prompt_tokens = sum(len(prompt.input_ids) for prompt in prepared)
        self._metrics.prompt_tokens += record.prompt_tokens
        self._record, self._prepared = record, prepared

    def numbered(self, uids: tuple[int, ...]) -> None:
        self._started_record.uids = uids

    def deltas(self, deltas: Sequence[Delta]) -> None:
        """What has come since the last call; tokens that came together have equal shares of the time."""
        now = perf_counter()
        last_token, observe_gap = self._last_token, self._metrics.token_gap_s.observe
        num_new = 0
        for delta in deltas:
            num_tokens = len(delta["token_ids"])
            if not num_tokens:
                self._note_admission(delta)
                continue
            num_new += num_tokens
            choice = (delta["index"], delta["choice"])
            last = last_token.get(choice)
            if last is None:
                self._note_first(delta, now)
            else:
                observe_gap((now - last) / num_tokens, num_tokens)
            last_token[choice] = now
        self._metrics.generated_tokens += num_new
        self._started_record.generated_tokens += num_new

    def finished(self, ending: Ending, outputs: Sequence[Output]) -> None:
        """The request is over, whole or not; outputs are those of the prompts that came to their end."""
        record, metrics = self._started_record, self._metrics
        choices = [choice for output in outputs for choice in choices_of(output)]
        reasons = [choice["finish_reason"] for choice in choices]
        record.finish_reason = ",".join(dict.fromkeys(reasons)) if ending == "ok" else ending
        for choice in choices:
            record.note_queue(choice["timings"].get("queue_s"))
        metrics.finished.update(reasons)
        if ending != "ok":
            metrics.aborted[ending] += 1

    @property
    def _started_record(self) -> RequestRecord:
        assert self._record is not None, "news of a request that was never started"
        return self._record

    def _note_first(self, delta: Delta, now: float) -> None:
        """A choice's first token. The earliest of all counts; a prompt's cached tokens are its first choice's."""
        record = self._started_record
        self._note_admission(delta)
        if not self._last_token:
            record.first_token_s = now - record.started
            self._metrics.first_token_s.observe(record.first_token_s)
        if delta["choice"] == 0:
            record.cached_tokens += delta.get("cached_tokens", 0)

    def _note_admission(self, delta: Delta) -> None:
        """A choice's first news, perhaps: what is known of it once it is admitted. A prompt's is its first choice's."""
        self._started_record.note_queue(delta.get("queue_s"))
        facts = delta.get("explanation")
        if facts is not None and delta["choice"] == 0:
            self._started_record.note_reasons(self._reasons(Explanation(**facts)))

    def _reasons(self, explanation: Explanation) -> Reasons:
        """Of one of several prompts, which may be all that is ever heard of, no position: nobody knew whose it is."""
        if len(self._prepared) > 1:
            return Reasons(explanation.causes)
        reasons = Reasons.of(explanation)
        if self._keep_text and self._started_record.started > self._book.texts_since:
            return reasons.with_window(Explained(self._prepared[0].input_ids, explanation))
        return reasons

"""What every kind of answer can do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from minisgl.llm.stream import Output
from minisgl.llm.submission import Delta
from minisgl.server.schema.answers import FinishReason


class Answer(Protocol):
    """One request's answer: `whole`, or `events` with every batch of deltas and `end` after the last."""

    def whole(self, outputs: Sequence[Output]) -> bytes:
        """The body in JSON. outputs: of every prompt, in order."""
        ...

    def events(self, deltas: Sequence[Delta]) -> bytes:
        """What these deltas add to a stream; maybe nothing."""
        ...

    def end(self, outputs: Sequence[Output]) -> bytes:
        """What comes after the last delta."""
        ...


@dataclass(frozen=True)
class Heading:
    """What all parts of an answer repeat. created: seconds since 1970."""

    id: str
    created: int
    model: str


def finish_reason(ended: Output | Delta) -> FinishReason:
    """Why it ended, in OpenAI's words; what was aborted or failed has no answer but an error."""
    reason = ended["finish_reason"]
    assert reason in ("stop", "length"), f"a choice that ended with {reason!r} has no answer"
    return reason

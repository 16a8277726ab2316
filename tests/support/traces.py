"""Traces made in a line: each request is its prompt's block ids and its output's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from minisgl.simulate.trace import Run, Trace, TracedRequest

TAU_AIRLINE = Path(__file__).parents[1] / "data" / "traces" / "tau_airline_200.jsonl.xz"

Ids = Sequence[int]


def make_request(
    prompt: Ids, output: Ids = (), at: float = 0.0, session: int | None = None, block_size: int = 1
) -> TracedRequest:
    """Lengths are of whole blocks."""
    lengths = len(prompt) * block_size, len(output) * block_size
    return TracedRequest(at, session, *lengths, to_runs(prompt), to_runs(output))


def make_trace(requests: Iterable[TracedRequest], block_size: int = 1) -> Trace:
    return Trace("made up", block_size, "", tuple(requests))


def prompts(*prompts: Ids) -> Trace:
    """One prompt a second, no output."""
    return make_trace(make_request(prompt, at=float(second)) for second, prompt in enumerate(prompts))


def to_runs(ids: Ids) -> tuple[Run, ...]:
    return tuple((number, 1) for number in ids)

"""Sends the conversations, at a rate or so many at once, and notes how each request went."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from minisgl.cli.bench.answer import Answer, Usage
from minisgl.cli.bench.backends import Backend, Turn
from minisgl.cli.bench.connections import Connections
from minisgl.cli.bench.datasets import Conversation


@dataclass(frozen=True)
class Result:
    """How one request went. Seconds from the sending. gaps_s: between pieces of text.

    error: why it counts as failed. late_s: how much later than planned it was sent; not 0 only at a rate. sent_s: by
    the clock `perf_counter`.
    """

    error: str | None
    total_s: float
    sent_s: float = 0.0
    late_s: float = 0.0
    first_token_s: float = 0.0
    gaps_s: tuple[float, ...] = ()
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True)
class Plan:
    """fields: of every request, beside the prompt. timeout_s: of one request."""

    backend: Backend
    fields: Mapping[str, Any]
    timeout_s: float


class Load:
    """One run. `on_result` is called for each request that is over."""

    def __init__(self, connections: Connections, plan: Plan, on_result: Callable[[Result], None]) -> None:
        self._connections = connections
        self._plan = plan
        self._on_result = on_result

    async def run_concurrently(self, conversations: Sequence[Conversation], concurrency: int) -> None:
        """So many conversations at any time; the next begins when one ends."""
        waiting = iter(conversations)

        async def work() -> None:
            for conversation in waiting:
                await self._hold(conversation, planned=None)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(concurrency, len(conversations))):
                group.create_task(work())

    async def run_at_rate(self, conversations: Sequence[Conversation], rate: float, seed: int) -> None:
        """Conversations begin as a Poisson process of `rate` a second, whether or not earlier ones are over."""
        rng = random.Random(seed)
        planned = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for conversation in conversations:
                await asyncio.sleep(planned - time.perf_counter())
                group.create_task(self._hold(conversation, planned))
                planned += rng.expovariate(rate)

    async def _hold(self, conversation: Conversation, planned: float | None) -> None:
        """All turns; after a failed one the others are failed too, because they cannot be asked."""
        history: list[Turn] = []
        error: str | None = None
        for question in conversation.questions:
            if error is None:
                answer, result = await self._ask(conversation.system, history, question, planned)
                error, planned = result.error, None
                history.append((question, answer.text))
            else:
                result = Result("not sent: an earlier turn failed", total_s=0.0)
            self._on_result(result)

    async def _ask(
        self, system: str, history: Sequence[Turn], question: str, planned: float | None
    ) -> tuple[Answer, Result]:
        plan, answer = self._plan, Answer()
        body = msgspec.json.encode({**plan.fields, **plan.backend.prompt(system, history, question)})
        started = time.perf_counter()
        try:
            async with asyncio.timeout(plan.timeout_s):
                status = await self._connections.request("POST", plan.backend.path, body, answer.feed)
            error = answer.error(status)
        except TimeoutError:
            error = f"no end within {plan.timeout_s:g} s"
        except OSError as failure:
            error = str(failure) or type(failure).__name__
        return answer, _result(answer, error, started, started if planned is None else planned)


def _result(answer: Answer, error: str | None, started: float, planned: float) -> Result:
    """Without usage, which some servers lack, each piece of text counts as a token."""
    total_s, times = time.perf_counter() - started, answer.times
    if error is not None:
        return Result(error, total_s, started, late_s=started - planned)
    usage = answer.usage or Usage(completion_tokens=len(times))
    return Result(
        error=None,
        total_s=total_s,
        sent_s=started,
        late_s=started - planned,
        first_token_s=times[0] - started,
        gaps_s=tuple(after - before for before, after in itertools.pairwise(times)),
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=usage.cached_tokens,
        output_tokens=usage.completion_tokens,
    )

"""minisgl bench serve: load on a running server, ours or another, and how fast it answered."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import time
from collections.abc import Callable, Coroutine, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from tqdm import tqdm

from minisgl.cli.address import Address
from minisgl.cli.bench.backends import BACKENDS
from minisgl.cli.bench.connections import Connections
from minisgl.cli.bench.datasets import DATASETS, Conversation, Shape
from minisgl.cli.bench.load import Load, Plan, Result
from minisgl.cli.bench.report import Clock, lines, summarize, table


class BackendName(StrEnum):
    COMPLETIONS = "completions"
    CHAT = "chat"


class DatasetName(StrEnum):
    RANDOM = "random"
    SHARED_PREFIX = "shared-prefix"
    MULTI_TURN = "multi-turn"


def run(
    url: Annotated[str, typer.Option("--url", help="Where the server is.")] = "http://127.0.0.1:8000",
    backend: Annotated[BackendName, typer.Option("--backend", help="The endpoint.")] = BackendName.COMPLETIONS,
    dataset: Annotated[DatasetName, typer.Option("--dataset", help="What is asked.")] = DatasetName.RANDOM,
    num_requests: Annotated[int, typer.Option("--num-requests", min=1, help="Requests in all.")] = 64,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", min=1, help="So many conversations at once (default: 8).")
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option("--rate", help="Instead: conversations begun a second, as a Poisson process."),
    ] = None,
    input_len: Annotated[int, typer.Option("--input-len", min=1, help="Words of a question.")] = 128,
    output_len: Annotated[int, typer.Option("--output-len", min=1, help="Tokens to generate (max_tokens).")] = 64,
    prefix_len: Annotated[int, typer.Option("--prefix-len", min=1, help="Words of a system prompt.")] = 512,
    num_groups: Annotated[int, typer.Option("--num-groups", min=1, help="shared-prefix: system prompts.")] = 1,
    num_turns: Annotated[int, typer.Option("--num-turns", min=1, help="multi-turn: turns of one conversation.")] = 4,
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos/--no-ignore-eos", help="Send ignore_eos, so that all outputs are as long.")
    ] = True,
    model: Annotated[str | None, typer.Option("--model", help="Its name (default: the first one served).")] = None,
    api_key: Annotated[str | None, typer.Option("--api-key", help="Sent as the bearer token.")] = None,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds after which a request has failed.")] = 600.0,
    seed: Annotated[int, typer.Option("--seed", help="Of texts and arrivals.")] = 0,
    as_json: Annotated[Path | None, typer.Option("--json", help="Write everything to this file.")] = None,
) -> None:
    """Send requests to a server and report how it went. Exits with 1 when a request failed."""
    if rate is not None and (concurrency is not None or rate <= 0):
        raise ValueError(f"--rate {rate:g}: it is over 0, and given without --concurrency")
    shape = Shape(num_requests, input_len, prefix_len, num_groups, num_turns, seed)
    fields = {"temperature": 0, "max_tokens": output_len, "stream": True, "stream_options": {"include_usage": True}}
    bench = _Bench(
        address=Address.of(url),
        headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
        plan=Plan(BACKENDS[backend], fields | ({"ignore_eos": True} if ignore_eos else {}), timeout),
        conversations=DATASETS[dataset](shape),
    )
    clock = _run_loop(bench.run(model, rate, concurrency or 8, seed))
    summary = {"url": url, "backend": backend.value, "dataset": dataset.value, **summarize(bench.results, clock)}
    _show(summary, f"{dataset.value} over {backend.value}, {url}")
    if as_json is not None:
        as_json.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    if summary["num_failed"]:
        raise typer.Exit(1)


class _Bench:
    """One run against one server."""

    def __init__(
        self, address: Address, headers: dict[str, str], plan: Plan, conversations: Sequence[Conversation]
    ) -> None:
        self.results: list[Result] = []
        self._address = address
        self._headers = headers
        self._plan = plan
        self._conversations = conversations

    async def run(self, model: str | None, rate: float | None, concurrency: int, seed: int) -> Clock:
        async with Connections(self._address, self._headers) as connections:
            plan = dataclasses.replace(
                self._plan, fields={"model": model or await _first_model(connections), **self._plan.fields}
            )
            total = sum(len(conversation.questions) for conversation in self._conversations)
            with tqdm(total=total, unit="request", disable=None) as bar:
                load = Load(connections, plan, self._note(bar))
                wall, cpu = time.perf_counter(), time.process_time()
                if rate is None:
                    await load.run_concurrently(self._conversations, concurrency)
                else:
                    await load.run_at_rate(self._conversations, rate, seed)
                return Clock(time.perf_counter() - wall, time.process_time() - cpu)

    def _note(self, bar: tqdm[Any]) -> Callable[[Result], None]:
        def note(result: Result) -> None:
            self.results.append(result)
            bar.update()

        return note


async def _first_model(connections: Connections) -> str:
    """What the server calls its model. ValueError when its answer has none."""
    parts: list[bytes] = []
    status = await connections.request("GET", "/v1/models", b"", parts.append)
    body = b"".join(parts)
    try:
        return str(json.loads(body)["data"][0]["id"])
    except (ValueError, LookupError, TypeError):
        raise ValueError(f"/v1/models answered {status} without a model: {body[:200]!r}; --model names one") from None


def _run_loop(coroutine: Coroutine[Any, Any, Clock]) -> Clock:
    """In uvloop's event loop where it is installed: at a thousand streams it halves what the client costs."""
    factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    with contextlib.suppress(ImportError):
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(coroutine)


def _show(summary: dict[str, Any], title: str) -> None:
    console = Console(highlight=False)
    console.print(table(summary, title))
    for line in lines(summary):
        console.print(line, markup=False)

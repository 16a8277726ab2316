"""minisgl bench serve: load on a running server, ours or another, and how fast it answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from minisgl.cli.address import Address
from minisgl.cli.bench.backends import BACKENDS
from minisgl.cli.bench.datasets import DATASETS, Shape
from minisgl.cli.choices import choice_option
from minisgl.cli.extras import needs_server_extra
from minisgl.env import ENV


def run(
    url: Annotated[str, typer.Option("--url", help="Where the server is.")] = "http://127.0.0.1:8000",
    backend: Annotated[str, choice_option("--backend", list(BACKENDS), help="The endpoint.")] = "completions",
    dataset: Annotated[str, choice_option("--dataset", list(DATASETS), help="What is asked.")] = "random",
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
    api_key: Annotated[
        str | None, typer.Option("--api-key", help="Sent as the bearer token (default: MINISGL_API_KEY).")
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds after which a request has failed.")] = 600.0,
    seed: Annotated[int, typer.Option("--seed", help="Of texts and arrivals.")] = 0,
    as_json: Annotated[Path | None, typer.Option("--json", help="Write everything to this file.")] = None,
) -> None:
    """Send requests to a server and report how it went. Exits with 1 when a request failed."""
    if rate is not None and (concurrency is not None or rate <= 0):
        raise ValueError(f"--rate {rate:g}: it is over 0, and given without --concurrency")
    api_key = api_key or ENV.API_KEY.value
    shape = Shape(num_requests, input_len, prefix_len, num_groups, num_turns, seed)
    fields = {"temperature": 0, "max_tokens": output_len, "stream": True, "stream_options": {"include_usage": True}}
    with needs_server_extra("minisgl bench"):
        from minisgl.cli.bench.load import Plan
        from minisgl.cli.bench.report import summarize
        from minisgl.cli.bench.runner import Bench
    bench = Bench(
        address=Address.of(url),
        headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
        plan=Plan(BACKENDS[backend], fields | ({"ignore_eos": True} if ignore_eos else {}), timeout),
        conversations=DATASETS[dataset](shape),
    )
    clock = bench.run(model, rate, concurrency or 8, seed)
    summary = {"url": url, "backend": backend, "dataset": dataset, **summarize(bench.results, clock)}
    _show(summary, f"{dataset} over {backend}, {url}")
    if as_json is not None:
        as_json.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    if summary["num_failed"]:
        raise typer.Exit(1)


def _show(summary: dict[str, Any], title: str) -> None:
    from minisgl.cli.bench.report import lines, table

    console = Console(highlight=False)
    console.print(table(summary, title))
    for line in lines(summary):
        console.print(line, markup=False)

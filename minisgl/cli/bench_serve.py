"""minisgl bench serve: load on a running server, ours or another, and how fast it answered."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from minisgl.cli.address import Address
from minisgl.cli.bench.backends import BACKENDS
from minisgl.cli.bench.datasets import DATASETS, Shape
from minisgl.cli.choices import choice_option
from minisgl.cli.extras import needs_server_extra
from minisgl.cli.files import check_writable, write_json
from minisgl.cli.plot import check_plot, draw
from minisgl.cli.server_flags import DEFAULT_URL, ApiKey, Url
from minisgl.env import ENV

if TYPE_CHECKING:
    from minisgl.cli.bench.load import Result


def run(
    url: Url = DEFAULT_URL,
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
    api_key: ApiKey = None,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds after which a request has failed.")] = 600.0,
    seed: Annotated[int, typer.Option("--seed", help="Of texts and arrivals.")] = 0,
    as_json: Annotated[Path | None, typer.Option("--json", help="Write everything to this file.")] = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw it to this file, .svg or .png.")] = None,
) -> None:
    """Send requests to a server and report how it went. Exits with 1 when a request failed."""
    check_writable("--json", as_json)
    check_plot(plot)
    if rate is not None and (concurrency is not None or not rate > 0):
        raise ValueError(f"--rate {rate:g}: it is over 0, and given without --concurrency")
    if not timeout > 0:
        raise ValueError(f"--timeout {timeout:g}: it is over 0")
    concurrency = concurrency or 8
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
    clock = bench.run(model, rate, concurrency, seed)
    settings = {"url": url, "model": bench.model, "backend": backend, "dataset": dataset}
    summary = {**settings, **summarize(bench.results, clock)}
    title = f"{bench.model}: {dataset} over {backend}, {url}"
    _show(summary, title)
    write_json(as_json, summary)
    if plot is not None:
        _draw(plot, f"{title}, {_load_of(rate, concurrency)}", bench.results)
    if summary["num_failed"]:
        raise typer.Exit(1)


def _show(summary: dict[str, Any], title: str) -> None:
    from minisgl.cli.bench.report import lines, table

    console = Console(highlight=False)
    console.print(table(summary, title))
    for line in lines(summary):
        console.print(line, markup=False)


def _load_of(rate: float | None, concurrency: int) -> str:
    return f"{concurrency} at once" if rate is None else f"{rate:g} begun a second"


def _draw(plot: Path, title: str, results: Sequence[Result]) -> None:
    from minisgl.cli.bench.serve_plot import panels

    if all(result.error is not None for result in results):
        typer.secho(f"--plot {plot}: no request went well, so there is nothing to draw", fg="yellow", err=True)
        return
    draw(plot, title, panels(results))

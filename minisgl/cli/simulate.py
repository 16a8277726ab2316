"""minisgl simulate: a trace through the real scheduler and prefix cache, and the offline optimum beside it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from minisgl.cli.capacity import other_pools
from minisgl.cli.files import check_writable, write_json
from minisgl.cli.plot import check_plot, draw
from minisgl.cli.simulate_plot import panels, title_of
from minisgl.cli.words import count
from minisgl.simulate.config import SimulationConfig
from minisgl.simulate.trace import read_trace
from minisgl.utils.progress import ProgressBar

if TYPE_CHECKING:
    from minisgl.simulate.study import Advance, Begin

TIMES = {"wait for admission": "wait_s", "time to first token": "ttft_s"}


def run(
    simulation: dict[str, Any],
    trace: Annotated[
        Path, typer.Argument(help="A .jsonl or .csv file, perhaps packed as .xz or .gz.", show_default=False)
    ],
    as_json: Annotated[Path | None, typer.Option("--json", help="Write everything to this file.")] = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw it to this file, .svg or .png.")] = None,
) -> None:
    """Replay a trace and report hits, waits and the use of the pool."""
    config = SimulationConfig(**simulation)
    check_writable("--json", as_json)
    check_plot(plot)
    requests = read_trace(trace, config.limit, config.block_size)
    from minisgl.simulate.study import study  # here, because torch takes seconds, and what may fail comes first

    with _progress_bars() as begin:
        summary = study(requests, config, begin)
    _show(summary)
    write_json(as_json, summary)
    if plot is not None:
        draw(plot, title_of(summary), panels(summary, TIMES))


@contextlib.contextmanager
def _progress_bars() -> Iterator[Begin]:
    """One after the other, as stages begin."""
    with contextlib.ExitStack() as shown:

        def begin(stage: str, total: int) -> Advance:
            shown.close()
            return shown.enter_context(ProgressBar(stage, total, "requests")).advance

        yield begin


def _show(summary: dict[str, Any]) -> None:
    result, console = summary["result"], Console(highlight=False)
    times = {f"{label}, s": result[key] for label, key in TIMES.items() if result.get(key)}
    if times:
        console.print(_table(times, summary["trace"]))
    for line in _lines(summary, result):
        console.print(line, markup=False, soft_wrap=True)


def _table(spreads: dict[str, dict[str, float]], title: str) -> Table:
    heads = next(iter(spreads.values()))
    table = Table("", *heads, title=title, title_justify="left")
    for label, spread in spreads.items():
        table.add_row(label, *(f"{value:,.2f}" for value in spread.values()))
    return table


def _lines(summary: dict[str, Any], result: dict[str, Any]) -> list[str]:
    has_clock = summary["config"]["clock"]
    lines = [
        f"{count(result['num_requests'], 'request')}, {count(result['prompt_tokens'], 'prompt token')}; a pool of "
        f"{count(summary['num_pages'], 'page')} of {count(summary['page_size'], 'token')}; "
        f"the trace has {count(summary['num_unique_pages'], 'different page')}",
        f"hits {result['hit_rate']:.2%} of the prompt tokens; the offline optimum in the trace's order "
        f"{summary['optimum']['hit_rate']:.2%}" + (" (another order may hit more)" if has_clock else ""),
        *_capacity_lines(result["capacity"]),
        f"{count(result['num_evicted_pages'], 'page')} evicted",
    ]
    return lines + (_clock_lines(summary, result) if has_clock else [])


def _capacity_lines(capacity: list[dict[str, float]]) -> list[str]:
    """What a server would say after this run, where it counts."""
    others = other_pools(((each["factor"], each["hit_rate"]) for each in capacity), digits=2)
    return [f"estimated from this run alone, pools of other sizes: {others}"] if others else []


def _clock_lines(summary: dict[str, Any], result: dict[str, Any]) -> list[str]:
    return [
        f"{count(result['computed_tokens'], 'prompt token')} computed, {result['generated_tokens']:,} generated, in "
        f"{count(result['num_batches'], 'batch', 'batches')}; {count(result['num_retracted'], 'retraction')}, "
        f"{result['num_failed']:,} failed",
        f"{result['duration_s']:,.1f} s, the engine busy for {result['busy_s']:,.1f}; "
        f"{result['requests_per_s']:,.2f} requests and {result['output_tokens_per_s']:,.1f} generated tokens a second",
        f"running requests held {result['mean_pages_used'] / summary['num_pages']:.1%} of the pool, "
        f"{result['mean_waiting']:,.1f} requests waited, on average",
    ]

"""minisgl simulate: a trace through the real scheduler and prefix cache, and the offline optimum beside it."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from minisgl.simulate.config import SimulationConfig
from minisgl.simulate.study import Advance, Begin, study
from minisgl.simulate.trace import read_trace

TIMES = {"wait for admission, s": "wait_s", "time to first token, s": "ttft_s"}


def run(
    simulation: dict[str, Any],
    trace: Annotated[Path, typer.Argument(help="A .jsonl or .csv file, perhaps packed as .xz.", show_default=False)],
    as_json: Annotated[Path | None, typer.Option("--json", help="Write everything to this file.")] = None,
) -> None:
    """Replay a trace and report hits, waits and the use of the pool."""
    config = SimulationConfig(**simulation)
    if as_json is not None:
        _check_writable(as_json)
    with _progress_bar() as begin:
        summary = study(read_trace(trace, config.limit), config, begin)
    _show(summary)
    if as_json is not None:
        as_json.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")


def _check_writable(path: Path) -> None:
    """ValueError before the work, not after it."""
    if path.is_dir():
        raise ValueError(f"--json {path}: this is a folder, not a file")
    if not path.parent.is_dir():
        raise ValueError(f"--json {path}: there is no folder {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ValueError(f"--json {path}: it may not be written")


@contextlib.contextmanager
def _progress_bar() -> Iterator[Begin]:
    """On stderr, if that is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:

        def begin(stage: str, total: int) -> Advance:
            task = progress.add_task(stage, total=total)
            return lambda: progress.advance(task)

        yield begin


def _show(summary: dict[str, Any]) -> None:
    result, console = summary["result"], Console(highlight=False)
    times = {label: result[key] for label, key in TIMES.items() if result.get(key)}
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
        f"{_count(result['num_requests'], 'request')}, {_count(result['prompt_tokens'], 'prompt token')}; a pool of "
        f"{_count(summary['num_pages'], 'page')} of {_count(summary['page_size'], 'token')}; "
        f"the trace has {_count(summary['num_unique_pages'], 'different page')}",
        f"hits {result['hit_rate']:.2%} of the prompt tokens; the offline optimum in the trace's order "
        f"{summary['optimum']['hit_rate']:.2%}" + (" (another order may hit more)" if has_clock else ""),
        *_capacity_lines(result["capacity"]),
        f"{_count(result['num_evicted_pages'], 'page')} evicted",
    ]
    return lines + (_clock_lines(summary, result) if has_clock else [])


def _capacity_lines(capacity: list[dict[str, float]]) -> list[str]:
    """What a server would say after this run, where it counts."""
    others = [f"{each['factor']:g}x {each['hit_rate']:.2%}" for each in capacity if each["factor"] != 1]
    return [f"estimated from this run alone, pools of other sizes: {', '.join(others)}"] if others else []


def _clock_lines(summary: dict[str, Any], result: dict[str, Any]) -> list[str]:
    return [
        f"{_count(result['computed_tokens'], 'prompt token')} computed, {result['generated_tokens']:,} generated, in "
        f"{_count(result['num_batches'], 'batch', 'batches')}; {_count(result['num_retracted'], 'retraction')}, "
        f"{result['num_failed']:,} failed",
        f"{result['duration_s']:,.1f} s, the engine busy for {result['busy_s']:,.1f}; "
        f"{result['requests_per_s']:,.2f} requests and {result['output_tokens_per_s']:,.1f} generated tokens a second",
        f"running requests held {result['mean_pages_used'] / summary['num_pages']:.1%} of the pool, "
        f"{result['mean_waiting']:,.1f} requests waited, on average",
    ]


def _count(number: int, noun: str, plural: str = "") -> str:
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"

"""minisgl bench radix: the same prompts with the radix cache and without one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from minisgl.cli.bench.offline import Run, Workload, measure
from minisgl.cli.bench.offline_report import settings_of, table, title_of
from minisgl.cli.bench.options import (
    AsJson,
    Dataset,
    InputLen,
    NumGroups,
    NumPrompts,
    OutputLen,
    Plot,
    PrefixLen,
    Seed,
)
from minisgl.cli.files import check_writable, write_json
from minisgl.cli.plot import bars, check_plot, draw
from minisgl.cli.session import load_llm

CACHES = ("naive", "radix")
ONLY_RADIX = ("eviction", "lookahead")  # fields that the naive cache refuses


def run(
    config: dict[str, Any],
    dataset: Dataset = "shared-prefix",
    num_prompts: NumPrompts = 32,
    input_len: InputLen = 32,
    output_len: OutputLen = 16,
    prefix_len: PrefixLen = 512,
    num_groups: NumGroups = 1,
    seed: Seed = 0,
    as_json: AsJson = None,
    plot: Plot = None,
) -> None:
    """Answer the same prompts with either cache. Exits with 1 where the tokens must be the same and are not."""
    if "cache_type" in config:
        raise ValueError(f"cache_type={config['cache_type']}: both caches are measured, so none is named")
    check_writable("--json", as_json)
    check_plot(plot)
    workload = Workload(
        dataset=dataset,
        num_prompts=num_prompts,
        input_len=input_len,
        output_len=output_len,
        prefix_len=prefix_len,
        num_groups=num_groups,
        seed=seed,
    )
    runs: dict[str, Run] = {}
    for cache_type in CACHES:
        fields = {name: value for name, value in config.items() if cache_type == "radix" or name not in ONLY_RADIX}
        with load_llm({**fields, "cache_type": cache_type}) as llm:
            settings = settings_of(llm, workload)
            runs[cache_type] = measure(llm, workload.prompts(llm.client.limits.vocab_size), output_len)
            must_agree = llm.spec.deterministic or settings["dtype"] == "float32"
    summaries = {cache_type: run.summary() for cache_type, run in runs.items()}
    num_same = sum(mine == other for mine, other in zip(*(run.token_ids for run in runs.values()), strict=True))
    _show(summaries, title_of(settings), num_same)
    del settings["cache_type"]
    write_json(as_json, {**settings, "num_same": num_same, "runs": summaries})
    if plot is not None:
        _draw(plot, title_of(settings), summaries)
    if must_agree and num_same < num_prompts:
        raise typer.Exit(1)


def _show(summaries: Mapping[str, Mapping[str, Any]], title: str, num_same: int) -> None:
    naive, radix = summaries.values()
    console = Console(highlight=False)
    console.print(title, markup=False)
    console.print(table(summaries))
    console.print(
        f"radix computed {radix['computed_tokens'] / naive['computed_tokens']:.1%} of the prompt tokens "
        f"in {radix['wall_s'] / naive['wall_s']:.1%} of the time",
        markup=False,
    )
    total = naive["num_prompts"]
    console.print(f"the same tokens for {num_same} of {total} prompts", style="" if num_same == total else "red")


def _draw(plot: Path, title: str, summaries: Mapping[str, Mapping[str, Any]]) -> None:
    tokens = {name: summary["computed_tokens"] for name, summary in summaries.items()}
    times = {name: summary["wall_s"] for name, summary in summaries.items()}
    draw(plot, title, [bars("prompt tokens computed", "tokens", tokens), bars("time", "s", times, "{:,.2f}")])

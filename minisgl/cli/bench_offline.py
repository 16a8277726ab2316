"""minisgl bench offline: how many tokens a second `LLM.generate` takes in and gives."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from minisgl.cli.bench.offline import Workload, measure
from minisgl.cli.bench.offline_report import over_time, prompt_bars, settings_of, table, title_of
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
from minisgl.cli.plot import check_plot, draw
from minisgl.cli.session import load_llm


def run(
    config: dict[str, Any],
    dataset: Dataset = "random",
    num_prompts: NumPrompts = 64,
    input_len: InputLen = 128,
    output_len: OutputLen = 64,
    prefix_len: PrefixLen = 512,
    num_groups: NumGroups = 1,
    seed: Seed = 0,
    as_json: AsJson = None,
    plot: Plot = None,
) -> None:
    """Answer prompts of random tokens in this process and report how fast it was."""
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
    with load_llm(config) as llm:
        settings = settings_of(llm, workload)
        result = measure(llm, workload.prompts(llm.client.limits.vocab_size), output_len)
    summary, title = result.summary(), title_of(settings)
    console = Console(highlight=False)
    console.print(title, markup=False)
    console.print(table({"": summary}))
    write_json(as_json, {**settings, **summary})
    if plot is not None:
        draw(plot, title, [over_time(result), prompt_bars(summary)])

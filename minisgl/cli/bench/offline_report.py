"""What `bench offline` and `bench radix` found, for people and as pictures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.table import Table

from minisgl.cli.bench.offline import Run, Workload
from minisgl.cli.plot import Panel, bars, rates

if TYPE_CHECKING:
    from minisgl.llm import LLM

ROWS = {
    "time, s": ("wall_s", "{:,.2f}"),
    "prompts a second": ("prompts_per_s", "{:,.2f}"),
    "generated tokens a second": ("output_tokens_per_s", "{:,.1f}"),
    "with those of the prompts": ("total_tokens_per_s", "{:,.1f}"),
    "prompt tokens": ("prompt_tokens", "{:,}"),
    "of them computed": ("computed_tokens", "{:,}"),
    "of them cached": ("cached_tokens", "{:,}"),
    "hit rate": ("cached_share", "{:.1%}"),
    "generated tokens": ("output_tokens", "{:,}"),
    "batches": ("num_steps", "{:,}"),
    "retractions": ("num_retracted", "{:,}"),
}


def settings_of(llm: LLM, workload: Workload) -> dict[str, Any]:
    """What was measured: the model as it was resolved on this machine, and what was asked."""
    spec = llm.spec
    engine = {
        "model": llm.config.engine.model,
        "device": str(spec.device),
        "dtype": str(spec.dtype).removeprefix("torch."),
        "quantization": spec.quantization,
        "attention_backend": spec.attention_backend,
        "page_size": spec.page_size,
        "num_pages": llm.stats()["num_pages"],
        "cache_type": llm.config.scheduler.cache_type,
    }
    return {**engine, **asdict(workload)}


def title_of(settings: Mapping[str, Any]) -> str:
    """In one line, for a table or a picture."""
    lengths = f"{settings['input_len']} in, {settings['output_len']} out"
    if settings["dataset"] == "shared-prefix":
        groups = settings["num_groups"]
        lengths = f"{groups} prefix{'es' * (groups > 1)} of {settings['prefix_len']} tokens, {lengths}"
    model = f"{settings['model']}, {settings['dtype']} on {settings['device']}"
    return f"{model}: {settings['num_prompts']} prompts, {lengths}"


def table(summaries: Mapping[str, Mapping[str, Any]]) -> Table:
    """A row a quantity, a column a run."""
    out = Table("", *summaries)
    for label, (key, shown) in ROWS.items():
        out.add_row(label, *(shown.format(summary[key]) for summary in summaries.values()))
    return out


def over_time(run: Run) -> Panel:
    """How many tokens the engine took in and gave: each batch's over the time until the next one."""
    ends = [*(step.at_s for step in run.steps[1:]), run.wall_s]
    done = {
        "prompt tokens computed": (ends, [step.num_prompt_tokens for step in run.steps]),
        "tokens decoded": (ends, [step.num_decodes for step in run.steps]),
    }
    return rates("what the engine did over time", "tokens a second", done, run.wall_s)


def prompt_bars(summary: Mapping[str, Any]) -> Panel:
    counts = {"cached": summary["cached_tokens"], "computed": summary["computed_tokens"]}
    return bars(f"prompt tokens, {summary['cached_share']:.1%} of them cached", "tokens", counts)

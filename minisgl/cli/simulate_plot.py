"""The picture of a simulation: hits beside the optimum, waits, and what other pools would hit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from minisgl.cli.plot import BLUE, GREEN, Panel, bars, grouped_bars

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def title_of(summary: Mapping[str, Any]) -> str:
    config = summary["config"]
    options = [f"{summary['num_pages']:,} pages of {summary['page_size']} tokens", f"eviction {config['eviction']}"]
    options += [f"policy {config['policy']}"] if config["clock"] else []
    return f"{summary['trace']}: {', '.join(options)}"


def panels(summary: Mapping[str, Any], times: Mapping[str, str]) -> list[Panel]:
    """times: the keys of spreads in seconds by what they are called; only those that the run has are drawn."""
    result = summary["result"]
    rates = {"this run": result["hit_rate"], "offline optimum": summary["optimum"]["hit_rate"]}
    found = [bars("hit rate", "share of the prompt tokens", rates, "{:.1%}")]
    spreads = {label: result[key] for label, key in times.items() if result.get(key)}
    if spreads:
        found.append(grouped_bars("waits", "s", spreads))
    if len(result["capacity"]) > 1:
        found.append(_capacity(result["capacity"], summary["optimum"]["hit_rate"]))
    return found


def _capacity(estimates: Sequence[Mapping[str, float]], optimum: float) -> Panel:
    """The curve that this run alone suggests, and what the best eviction could have hit in this pool."""

    def panel(axes: Axes) -> None:
        factors, rates = ([each[name] for each in estimates] for name in ("factor", "hit_rate"))
        axes.plot(factors, rates, color=BLUE, marker="o", label="estimate")
        axes.plot([1], [optimum], color=GREEN, marker="*", markersize=11, linestyle="", label="offline optimum")
        axes.set_xscale("log", base=2)
        axes.set_xticks(factors, [f"{factor:g}x" for factor in factors])
        axes.minorticks_off()
        axes.set(title="other pools, as estimated from this run", xlabel="pool", ylabel="hit rate", ylim=(0, 1))
        axes.legend()

    return panel

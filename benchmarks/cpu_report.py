"""The table of `bench_cpu.py`: every figure beside that of the best peer and beside the floor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from cpu_engines import OURS
from cpu_lines import Figure
from rich.table import Table


@dataclass
class Result:
    """values: one a round. others: cores that other processes kept busy, each round. floor: the figure at best."""

    figure: Figure
    engine: str
    quant: str
    values: list[float]
    others: list[float] = field(default_factory=list)
    floor: float | None = None

    @property
    def is_ours(self) -> bool:
        return self.engine == OURS.name

    @property
    def value(self) -> float:
        return median(self.values)

    def times_as_fast(self, value: float) -> float | None:
        """Speed over speed, or size over size the other way round; None where a size is not above zero."""
        if min(self.value, value) <= 0:
            return None
        return self.value / value if self.figure.more_is_better else value / self.value

    def json(self) -> dict[str, Any]:
        figure = {"title": self.figure.title, "unit": self.figure.unit}
        return asdict(self) | {"figure": figure, "value": self.value}


def best_peer(results: Sequence[Result]) -> Result | None:
    """Of the results of one figure."""
    peers = [result for result in results if not result.is_ours]
    choose = max if peers and peers[0].figure.more_is_better else min
    return choose(peers, key=lambda result: result.value) if peers else None


def table(results: Sequence[Result], title: str) -> Table:
    out = Table(title=title, title_justify="left")
    for column in ("line", "engine", "quant"):
        out.add_column(column)
    for column in ("figure", "of best peer", "of floor", "others, cores", "target"):
        out.add_column(column, justify="right")
    titles = dict.fromkeys(result.figure.title for result in results)
    for name in titles:
        group = [result for result in results if result.figure.title == name]
        best = best_peer(group)
        for number, result in enumerate(group):
            out.add_row(
                *(
                    name if number == 0 else "",
                    result.engine,
                    result.quant,
                    f"{_number(result.value)} {result.figure.unit}",
                ),
                *(_times(result.times_as_fast(best.value) if best else None), _share(result)),
                *(f"{max(result.others):.1f}", _target(result, best)),
                end_section=number + 1 == len(group),
            )
    return out


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}x"


def _share(result: Result) -> str:
    share = None if result.floor is None else result.times_as_fast(result.floor)
    return "-" if share is None else f"{share:.0%}"


def _target(result: Result, best: Result | None) -> str:
    """What is aimed at, and whether it is met; of ours only."""
    figure = result.figure
    if not result.is_ours or figure.target is figure.at_most is None:
        return ""
    if figure.at_most is not None:
        return f"{figure.at_most:g} {figure.unit}: {_met(result.value <= figure.at_most)}"
    ratio = result.times_as_fast(best.value) if best else None
    return f"{figure.target}x" + ("" if ratio is None else f": {_met(ratio >= (figure.target or 0))}")


def _met(is_met: bool) -> str:
    return "met" if is_met else "MISSED"

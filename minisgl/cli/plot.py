"""Pictures of what was measured, for `--plot FILE.svg` or FILE.png, all in one style. Needs the extra `plot`.

A picture is a row of panels, each a function that draws into matplotlib's axes; common ones are here.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from minisgl.cli.files import check_writable
from minisgl.utils.output_file import errors_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.ticker import Formatter

Panel = Callable[["Axes"], None]
ENDINGS = (".svg", ".png")
# Okabe and Ito's colours, which colour-blind people tell apart, the strongest first.
BLUE, ORANGE, GREEN, PURPLE = COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7")
PANEL_INCHES = (4.6, 3.6)
MAX_BINS = 60
_LOOK: Any = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": "medium",
    "figure.titlesize": "medium",
    "font.size": 9,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "svg.fonttype": "none",  # texts stay texts: smaller, and they can be searched
    "svg.hashsalt": "minisgl",  # the same picture is the same file
    "text.parse_math": False,  # a model's name is no formula
}


def check_plot(path: Path | None) -> None:
    """ValueError before the work: for an ending that is none of a picture, a path that cannot be written, and where
    matplotlib is missing."""
    if path is None:
        return
    if path.suffix.lower() not in ENDINGS:
        raise ValueError(f"--plot {path}: a picture ends in {' or '.join(ENDINGS)}")
    check_writable("--plot", path)
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError("--plot needs the extra `plot`: pip install 'minisgl[plot]' (matplotlib is missing)")


def draw(path: Path, title: str, panels: Sequence[Panel]) -> None:
    """Write a picture of these panels side by side."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    width, height = PANEL_INCHES
    with rc_context(_LOOK):
        figure = Figure((width * len(panels), height), layout="constrained")
        figure.suptitle(title)
        for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            panel(axes)
        undated = {"Date": None} if path.suffix.lower() == ".svg" else {}
        with errors_name(path):
            figure.savefig(path, dpi=144, metadata=undated)


def distribution(title: str, unit: str, values: Mapping[str, Sequence[float]]) -> Panel:
    """How many of the values are at most so large, a line for each kind of them."""

    def panel(axes: Axes) -> None:
        for colour, (label, numbers) in zip(COLOURS, values.items(), strict=False):
            if len(numbers):
                axes.ecdf(numbers, color=colour, label=label)
        axes.set(title=title, xlabel=unit, ylabel="share that is at most so long", ylim=(0, 1))
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter(_between_powers())
        _legend(axes)

    return panel


def rates(title: str, what: str, done: Mapping[str, tuple[Sequence[float], Sequence[float]]], end_s: float) -> Panel:
    """How many a second over time. done: by kind, how many were done since the time before, at ascending times.

    end_s: of the whole run, which began at 0.
    """

    def panel(axes: Axes) -> None:
        edges = np.linspace(0, end_s, MAX_BINS + 1)
        for colour, (label, (times, counts)) in zip(COLOURS, done.items(), strict=False):
            until_then = np.interp(edges, [0, *times], [0, *np.cumsum(counts)])
            axes.stairs(np.diff(until_then) / np.diff(edges), edges, color=colour, label=label)
        axes.set(title=title, xlabel="time, s", ylabel=what, xlim=(0, end_s))
        axes.set_ylim(bottom=0)
        _legend(axes)

    return panel


def bars(title: str, what: str, values: Mapping[str, float], shown: str = "{:,.0f}") -> Panel:
    """A bar for each, with its number."""

    def panel(axes: Axes) -> None:
        drawn = axes.bar(list(values), list(values.values()), color=COLOURS[: len(values)], width=0.6)
        axes.bar_label(drawn, [shown.format(value) for value in values.values()])
        axes.set(title=title, ylabel=what)
        axes.grid(visible=False, axis="x")
        axes.margins(y=0.12)

    return panel


def grouped_bars(title: str, what: str, groups: Mapping[str, Mapping[str, float]]) -> Panel:
    """Bars side by side for each kind of number, one of each group; all groups have the same kinds."""

    def panel(axes: Axes) -> None:
        width = 0.8 / len(groups)
        for index, (colour, (label, values)) in enumerate(zip(COLOURS, groups.items(), strict=False)):
            places = np.arange(len(values)) + width * (index - (len(groups) - 1) / 2)
            drawn = axes.bar(places, list(values.values()), width, color=colour, label=label)
            axes.bar_label(drawn, [f"{value:.3g}" for value in values.values()])
            axes.set_xticks(range(len(values)), list(values))
        axes.set(title=title, ylabel=what)
        axes.grid(visible=False, axis="x")
        axes.margins(y=0.12)
        _legend(axes)

    return panel


def _between_powers() -> Formatter:
    """Numbers as they are, not as formulas, and only where a logarithmic axis has room for them."""
    from matplotlib.ticker import LogFormatter

    class Plain(LogFormatter):
        def __call__(self, x: float, pos: int | None = None) -> str:
            return f"{x:g}" if super().__call__(x, pos) else ""

    return Plain()


def _legend(axes: Axes) -> None:
    """Where there is more than one thing to tell apart."""
    if len(axes.get_legend_handles_labels()[1]) > 1:
        axes.legend()

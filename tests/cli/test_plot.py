"""What `--plot` draws, and what it refuses before the work."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from support.needs import FULL_DEVICE

from minisgl.cli.plot import bars, check_plot, distribution, draw, grouped_bars, rates

PANELS = [
    distribution("waits", "ms", {"first token": [1.0, 20.0, 300.0], "none of these": []}),
    rates("throughput", "tokens a second", {"in": ([1.0, 2.0], [10, 20]), "out": ([2.0], [5])}, 2.0),
    bars("computed", "tokens", {"naive": 1392, "radix": 392}),
    grouped_bars("spreads", "s", {"wait": {"mean": 1.0, "max": 2.0}, "first": {"mean": 1.5, "max": 2.5}}),
]


def texts_of(picture: Path) -> set[str]:
    return set(re.findall(r">([^<>]+)</text>", picture.read_text()))


def test_a_picture_says_what_is_drawn_in_which_units(tmp_path: Path) -> None:
    draw(tmp_path / "all.svg", "a model that costs $5, or $6", PANELS)
    shown = {"a model that costs $5, or $6", "waits", "ms", "time, s", "tokens a second", "in", "out", "1,392", "naive"}
    assert shown <= texts_of(tmp_path / "all.svg")


@pytest.mark.parametrize("numbers", [[1900.0, 4000.0, 9800.0], [2000.0, 2010.0], [1500.0, 2500.0], [0.3, 5e6], [7.0]])
def test_a_logarithmic_axis_says_plain_numbers_however_short_it_is(tmp_path: Path, numbers: list[float]) -> None:
    draw(tmp_path / "short.svg", "title", [distribution("waits", "ms", {"first token": numbers})])
    shown = texts_of(tmp_path / "short.svg") - {"title", "waits", "ms", "share that is at most so long"}
    assert all(re.fullmatch(r"[\d.e+\u2212-]+", text) for text in shown), shown
    assert len(shown) > 6  # those of the other axis


def test_the_same_numbers_are_the_same_file(tmp_path: Path) -> None:
    for name in ("one.svg", "two.svg"):
        draw(tmp_path / name, "title", PANELS)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_a_png_is_one(tmp_path: Path) -> None:
    draw(tmp_path / "all.PNG", "title", PANELS[2:3])
    assert (tmp_path / "all.PNG").read_bytes().startswith(b"\x89PNG")


@FULL_DEVICE
def test_a_picture_that_finds_no_room_names_its_file(tmp_path: Path) -> None:
    (tmp_path / "full.svg").symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"No space left on device: '.*full\.svg'"):
        draw(tmp_path / "full.svg", "title", PANELS[2:3])


def test_a_rate_is_what_was_done_over_the_time_that_it_took() -> None:
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    rates("", "", {"in": ([1.0, 2.0], [10, 20])}, 2.0)(axes)
    (stairs,) = axes.patches
    values, edges, _ = stairs.get_data()
    assert values == pytest.approx([10.0] * 30 + [20.0] * 30)
    assert edges[-1] == 2.0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("x.pdf", r"--plot .*x\.pdf: a picture ends in \.svg or \.png"),
        ("x", "a picture ends in"),
        ("nowhere/x.svg", "there is no folder"),
        ("folder.svg", "this is a folder, not a file"),
    ],
)
def test_a_path_that_can_be_no_picture_is_refused(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(ValueError, match=message):
        check_plot(tmp_path / name)


def test_it_says_which_extra_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    check_plot(None)
    with pytest.raises(ValueError, match=r"pip install 'minisgl\[plot\]' \(matplotlib is missing\)"):
        check_plot(tmp_path / "x.svg")

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from support.traces import TAU_AIRLINE

from minisgl.cli import simulate
from minisgl.utils.progress import ProgressBar

ROOT = Path(__file__).parents[2]


def test_the_sample_on_the_page_is_what_the_command_writes(run, monkeypatch: pytest.MonkeyPatch):
    """If this fails, run the command in docs/simulate.md and put its output there."""
    sample = re.search(r"```text\n\$ minisgl (.*)\n([^`]*)```", (ROOT / "docs/simulate.md").read_text())
    assert sample
    monkeypatch.chdir(ROOT)
    done = run(*shlex.split(sample[1]))
    assert [line.rstrip() for line in done.out.splitlines()] == sample[2].splitlines()


def test_a_trace_is_replayed_and_reported(run, tmp_path: Path):
    out = tmp_path / "out.json"
    done = run("simulate", str(TAU_AIRLINE), "--limit", "40", "--pages", "900", "--policy", "lpm", "--json", str(out))
    assert done.code == 0
    assert "the offline optimum in the trace's order" in done.out
    summary = json.loads(out.read_text())
    assert (summary["config"]["policy"], summary["result"]["num_requests"]) == ("lpm", 40)
    assert f"hits {summary['result']['hit_rate']:.2%}" in done.out


@pytest.mark.parametrize(
    ("flags", "stages"),
    [(("--load", "1.5"), ["full load", "simulating", "optimum"]), (("--no-clock",), ["replaying", "optimum"])],
)
def test_every_stage_is_shown_on_a_terminal_one_after_the_other(
    run, flags: tuple[str, ...], stages: list[str], monkeypatch: pytest.MonkeyPatch
):
    shown = []

    class Bar(ProgressBar):
        def __enter__(self) -> ProgressBar:
            shown.append([self])
            return super().__enter__()

        def __exit__(self, *error) -> None:
            (bar,) = shown[-1]
            shown[-1] = bar._what, bar.done

    monkeypatch.setattr(simulate, "ProgressBar", Bar)
    assert run("simulate", str(TAU_AIRLINE), "--limit", "10", *flags).code == 0
    assert shown == [(stage, 10) for stage in stages]


@pytest.mark.parametrize(
    ("flags", "there", "missing"),
    [
        (("--policy", "lpm"), "time to first token", "no such text"),
        (("--no-clock", "--eviction", "fifo"), "eviction fifo", "time to first token"),
    ],
)
def test_a_simulation_is_drawn_with_what_it_has(run, tmp_path: Path, flags, there: str, missing: str):
    picture = tmp_path / "out.svg"
    done = run("simulate", str(TAU_AIRLINE), "--limit", "40", "--pages", "900", "--plot", str(picture), *flags)
    assert done.code == 0, done.err
    shown = picture.read_text()
    assert missing not in shown
    for text in (there, "900 pages of 16 tokens", "offline optimum", "other pools, as estimated from this run"):
        assert text in shown


def test_without_a_clock_nothing_is_said_of_times(run):
    done = run("simulate", str(TAU_AIRLINE), "--limit", "40", "--no-clock")
    assert done.code == 0
    assert "first token" not in done.out


def test_look_ahead_is_off_without_a_clock_until_it_is_asked_for(run, tmp_path: Path):
    out = tmp_path / "out.json"
    for flags, lookahead in ((("--no-clock",), 0), (("--no-clock", "--lookahead", "8"), 8), ((), 256)):
        run("simulate", str(TAU_AIRLINE), "--limit", "10", "--json", str(out), *flags)
        assert json.loads(out.read_text())["config"]["lookahead"] == lookahead


def test_one_request_is_not_written_as_many(run, tmp_path: Path):
    path = tmp_path / "one.jsonl"
    path.write_text('{"block_size": 1}\n{"t": 0, "in": 1, "out": 1, "runs": [[0, 1]]}\n')
    done = run("simulate", str(path), "--page-size", "1")
    assert "1 request, 1 prompt token; a pool of 2 pages of 1 token; the trace has 1 different page\n" in done.out
    assert "1 prompt token computed, 1 generated, in 2 batches; 0 retractions" in done.out


def test_a_trace_of_hash_ids_is_replayed_with_the_block_size_that_is_given(run, tmp_path: Path):
    path = tmp_path / "hashed.jsonl"
    path.write_text(
        '{"timestamp": 0, "input_length": 80, "output_length": 1, "hash_ids": [7, 8, 9]}\n'
        '{"timestamp": 500, "input_length": 96, "output_length": 1, "hash_ids": [7, 8, 5]}\n'
    )
    done = run("simulate", str(path), "--block-size", "32", "--no-clock")
    assert done.code == 0, done.err
    assert "2 requests, 176 prompt tokens; a pool of 3 pages of 32 tokens; the trace has 4 different pages" in done.out
    assert "hits 36.36% of the prompt tokens" in done.out  # 64 of 176
    done = run("simulate", str(path))
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert f'{path}, line 1: "hash_ids" has 3 blocks' in done.err
    assert "is --block-size=512 right?" in done.err


@pytest.mark.parametrize(("name", "error"), [("", "is a folder"), ("nowhere/out.json", "there is no folder")])
def test_a_result_that_cannot_be_written_is_refused_before_the_work(run, tmp_path: Path, name: str, error: str):
    done = run("simulate", str(TAU_AIRLINE), "--json", str(tmp_path / name))
    assert (done.code, done.out) == (2, "")
    assert error in done.err
    assert done.err.count("\n") == 1


def test_a_broken_line_is_one_line_with_its_number_and_exit_2(run, tmp_path: Path):
    path = tmp_path / "broken.jsonl"
    path.write_text('{"block_size": 1}\n{"t": 0}\n')
    done = run("simulate", str(path))
    assert done.code == 2
    assert f"{path}, line 2: " in done.err
    assert done.err.count("\n") == 1


def test_a_file_that_is_not_there_is_named(run):
    done = run("simulate", "nowhere.jsonl")
    assert (done.code, done.err) == (2, "error: nowhere.jsonl: No such file or directory\n")

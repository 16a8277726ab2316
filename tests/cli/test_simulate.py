from __future__ import annotations

import json
from pathlib import Path

from support.traces import TAU_AIRLINE


def test_a_trace_is_replayed_and_reported(run, tmp_path: Path):
    out = tmp_path / "out.json"
    done = run("simulate", str(TAU_AIRLINE), "--limit", "40", "--pages", "900", "--policy", "lpm", "--json", str(out))
    assert done.code == 0
    assert "the offline optimum in the trace's order" in done.out
    summary = json.loads(out.read_text())
    assert (summary["config"]["policy"], summary["result"]["num_requests"]) == ("lpm", 40)
    assert f"hits {summary['result']['hit_rate']:.2%}" in done.out


def test_without_a_clock_nothing_is_said_of_times(run):
    done = run("simulate", str(TAU_AIRLINE), "--limit", "40", "--no-clock")
    assert done.code == 0
    assert "first token" not in done.out


def test_a_broken_line_is_one_line_with_its_number_and_exit_2(run, tmp_path: Path):
    path = tmp_path / "broken.jsonl"
    path.write_text('{"block_size": 1}\n{"t": 0}\n')
    done = run("simulate", str(path))
    assert done.code == 2
    assert f"{path}, line 2: " in done.err
    assert done.err.count("\n") == 1


def test_a_file_that_is_not_there_is_named(run):
    done = run("simulate", "nowhere.jsonl")
    assert done.code == 2
    assert "nowhere.jsonl" in done.err

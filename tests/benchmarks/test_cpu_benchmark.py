"""The CPU benchmark runs engines in turns, and one that is missing or fails is only a line that says so."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import bench_cpu
import cpu_engines
import pytest
from bench_cpu import Fleet, measure
from cpu_engines import EngineError, EngineProcess, Kind, Places
from cpu_floors import Rates
from cpu_lines import LINES, Figure, Line
from cpu_load import OtherLoad, family, resident_bytes
from cpu_models import Models
from cpu_report import Result, table
from rich.console import Console
from support.hf_configs import MINIMAL

from minisgl.models.gguf_checkpoint import GGUFCheckpoint

FAKE = [sys.executable, str(Path(__file__).parent / "fake_peer.py")]
COUNT = Line("count", (Figure("tokens", "tok/s", 1.0),), lambda engine, rng: (engine.run([[1]], 5),), ("q4_1",))


@contextmanager
def engine(tmp_path: Path, manner: str = "good", timeout: float = 30) -> Iterator[EngineProcess]:
    command = [*FAKE, "--manner", manner]
    process = EngineProcess(
        command, Path("m"), weight_bytes=10, kv_items=3, threads=1, log=tmp_path / "log", timeout=timeout
    )
    try:
        yield process
    finally:
        process.close()


class FakeModels(Models):
    def path(self, name: str) -> Path:
        return Path(name)

    def weight_bytes(self, name: str) -> int:
        return 1


class FakePlaces(Places):
    """Engines are named after their manners; there is none for "nowhere"."""

    def command(self, kind: Kind) -> list[str] | None:
        return None if kind.name == "nowhere" else [*FAKE, "--manner", kind.name]


def fleet_and_kinds(tmp_path: Path, *names: str) -> tuple[Fleet, list[Kind]]:
    fleet = Fleet(FakeModels(tmp_path), FakePlaces(), kv_items=1, threads=1, timeout=30, logs=tmp_path)
    return fleet, [Kind(name, "", {"q4_1": "q4_1"}) for name in names]


def test_an_engine_says_what_it_is_and_how_long_a_run_took(tmp_path: Path) -> None:
    with engine(tmp_path) as running:
        assert running.hello["about"] == "fake 1.0"
        assert 0 <= running.run([[1, 2], [3, 4]], 3) < 30
        assert running.first_token_s() > 0
    assert "a line of its own on stdout" in (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    ("manner", "says"),
    [
        ("short", "asked for 1 x 3 tokens, it gave \\[2\\]"),
        ("crashing", "it ended: .*fake signal"),
    ],
)
def test_an_engine_that_fails_in_a_run_says_why(tmp_path: Path, manner: str, says: str) -> None:
    with engine(tmp_path, manner) as running, pytest.raises(EngineError, match=says):
        running.run([[1]], 3)


def test_an_engine_that_cannot_load_says_why(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="ImportError: no module named fake"), engine(tmp_path, "absent"):
        pass


def test_an_engine_that_does_not_answer_is_given_up_and_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_engines, "CLOSE_S", 0.05)
    with engine(tmp_path, "silent") as running:
        running._timeout = 0.05
        with pytest.raises(EngineError, match=r"no answer in 0\.05 s"):
            running.run([[1]], 3)
        pid = running._process.pid
    assert not Path(f"/proc/{pid}").exists()


def test_memory_beyond_leaves_out_weights_and_computed_tokens_or_the_whole_pool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_engines, "resident_bytes", lambda pid: 1000)
    with engine(tmp_path) as lazy:
        assert lazy.beyond_bytes(5) == 1000 - 10 - 5 * 3 * 2
    with engine(tmp_path, "pooled") as pooled:
        assert pooled.beyond_bytes(5) == 1000 - 10 - 7 * 3 * 2


def test_engines_that_are_missing_or_fail_leave_the_others_results(tmp_path: Path) -> None:
    fleet, kinds = fleet_and_kinds(tmp_path, "good", "absent", "nowhere", "crashing")
    results = measure(COUNT, kinds, fleet, rounds=2, seed=0)
    fleet.keep([])
    assert [(result.engine, len(result.values), len(result.others)) for result in results] == [("good", 2, 2)]
    assert fleet.notes["good q4_1"] == "fake 1.0"
    assert fleet.notes["nowhere q4_1"] == "not measured: no option says where it is"
    assert "no module named fake" in fleet.notes["absent q4_1"]
    assert fleet.notes["crashing q4_1"].startswith("not measured any further: it ended")


def test_an_engine_runs_on_for_later_lines_that_need_it_and_no_longer(tmp_path: Path) -> None:
    fleet, (kind,) = fleet_and_kinds(tmp_path, "good")
    first = fleet.get((kind, "q4_1"))
    fleet.keep(["q4_1", "bf16"])
    assert fleet.get((kind, "q4_1")) is first
    fleet.keep(["bf16"])
    assert fleet.get((kind, "q4_1")) is None


def test_every_engine_has_some_line_and_every_line_some_engine() -> None:
    asked = {quant for line in LINES.values() for quant in line.quants}
    assert {quant for kind in cpu_engines.KINDS.values() for quant in kind.files} == asked


def test_a_run_prints_and_writes_what_was_measured_and_what_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_cpu, "Models", lambda folder, onnx_python: FakeModels(folder, onnx_python))
    monkeypatch.setattr(bench_cpu, "measure_rates", lambda num_bytes: Rates(1e9, 1e9, 1e9, 1e9))
    monkeypatch.setattr(GGUFCheckpoint, "__init__", lambda checkpoint, path: None)
    monkeypatch.setattr(GGUFCheckpoint, "hf_config", lambda checkpoint: MINIMAL)
    monkeypatch.setattr(Places, "command", lambda places, kind: FAKE if kind.name == "transformers" else None)
    asked = ["--engines", "transformers,vllm", "--lines", "prefill,first", "--rounds", "1", "--threads", "1"]
    results = bench_cpu.main([*asked, "--json", str(tmp_path / "out.json")])
    assert [result.figure.title for result in results] == [
        "prefill of 1,024",
        "first token, 1,000 tokens",
        "first token, 900 of 1,000 cached",
    ]
    assert all(result.value > 0 and (result.floor or 0) > 0 for result in results)
    written = json.loads((tmp_path / "out.json").read_text())
    assert [result["value"] for result in written["results"]] == [result.value for result in results]
    assert "vllm bf16: not measured: no option says where it is" in capsys.readouterr().out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=str)
def test_engines_end_with_the_run_that_started_them(tmp_path: Path, number: signal.Signals) -> None:
    script = str(Path(__file__).parent / "hanging_benchmark.py")
    logs = tmp_path / "not" / "there"
    with subprocess.Popen([sys.executable, script, str(logs)], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout is not None
        assert b"operations" in run.stdout.readline()
        assert run.stdout.readline() == b"transformers bf16: fake 1.0\n"  # it is about to be asked
        engines = set(family(run.pid)) - {run.pid}
        assert engines
        assert (logs / "transformers-bf16.log").exists()
        run.send_signal(number)
        run.communicate(timeout=60)
    deadline = time.monotonic() + 60
    while any(is_alive(pid) for pid in engines) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(is_alive(pid) for pid in engines)


def is_alive(pid: int) -> bool:
    """Whether there is such a process that has not ended; whoever is its parent now may not have looked at it yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_line_or_an_engine_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench_cpu.parse_args(["--lines", "load,lode"])
    assert "unknown: lode; there are load, memory" in capsys.readouterr().err


def test_figures_stand_beside_the_best_peer_the_floor_and_the_target() -> None:
    rate, time = Figure("rate", "tok/s", target=1.2), Figure("time", "ms", target=1.0)
    results = [
        Result(rate, "minisgl", "q4_1", [90, 110, 100], [0.1, 0.7], floor=200),
        Result(rate, "fast", "q4_1", [80], [0.0]),
        Result(rate, "slow", "bf16", [40], [0.0]),
        Result(time, "minisgl", "q4_1", [20], [0.0], floor=5),
        Result(time, "fast", "bf16", [10], [0.0]),
    ]
    console = Console(width=120, file=io.StringIO(), record=True)
    console.print(table(results, "title"))
    rows = [
        line.replace("│", " ").split() for line in console.export_text().splitlines() if "/s" in line or "ms" in line
    ]
    assert rows == [
        ["rate", "minisgl", "q4_1", "100", "tok/s", "1.25x", "50%", "0.7", "1.2x:", "met"],
        ["fast", "q4_1", "80.0", "tok/s", "1.00x", "-", "0.0"],
        ["slow", "bf16", "40.0", "tok/s", "0.50x", "-", "0.0"],
        ["time", "minisgl", "q4_1", "20.0", "ms", "0.50x", "25%", "0.0", "1.0x:", "MISSED"],
        ["fast", "bf16", "10.0", "ms", "1.00x", "-", "0.0"],
    ]


def test_the_family_of_a_process_has_its_children_and_memory(tmp_path: Path) -> None:
    with engine(tmp_path) as running:
        assert running._process.pid in family(os.getpid())
        assert 0 < resident_bytes(running._process.pid) < resident_bytes(os.getpid())


def test_what_this_process_does_itself_is_not_the_load_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([(10.0, 100.0, 50.0), (14.0, 108.0, 52.0)])
    monkeypatch.setattr(OtherLoad, "_now", staticmethod(lambda: next(moments)))
    assert OtherLoad().cores() == 1.5

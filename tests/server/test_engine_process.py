"""The server as its users start it, with SmolLM2 in its engine process: nothing is left over, whoever dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.live_server import LiveServer, free_port, live_server
from support.streams import Stream, status_of_health, wait_until

pytestmark = pytest.mark.slow
SMALL = ("--max-seq-len", "1024", "--num-pages", "8192", "--max-running", "32")
LONG = {"model": "smollm2", "ignore_eos": True, "max_tokens": 900}


@pytest.fixture
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[LiveServer]:
    """A test may say for how many seconds it drains."""
    with live_server(*SMALL, "--drain-timeout", getattr(request, "param", "5"), log=tmp_path / "log") as server:
        yield server


def engine_of(server: LiveServer) -> int:
    (pid,) = children_of(server.process.pid)
    return pid


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def children_of(pid: int) -> list[int]:
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for path in lists for child in path.read_text().split()]


def test_sigterm_lets_streams_end_in_time_and_tells_those_that_do_not(server: LiveServer) -> None:
    engine = engine_of(server)
    short = [Stream(server.port, model="smollm2", max_tokens=12, ignore_eos=True) for _ in range(3)]
    long = Stream(server.port, **LONG)
    server.process.send_signal(signal.SIGTERM)
    assert [stream.to_the_end() for stream in short] == ["[DONE]"] * 3
    assert long.to_the_end()["error"]["code"] == "server_shutting_down"
    assert server.process.wait(30) == 0
    assert not is_running(engine)


@pytest.mark.parametrize("server", ["1"], indirect=True)
def test_sigterm_ends_a_server_whose_engine_hangs_and_tells_its_streams(server: LiveServer) -> None:
    engine = engine_of(server)
    stream = Stream(server.port, **LONG)
    os.kill(engine, signal.SIGSTOP)
    server.process.send_signal(signal.SIGTERM)
    assert stream.to_the_end()["error"]["code"] == "server_shutting_down"
    assert server.process.wait(30) == 0
    assert not is_running(engine)


def test_an_engine_killed_with_streams_open_is_told_to_all_of_them_and_ends_the_server(server: LiveServer) -> None:
    engine = engine_of(server)
    streams = [Stream(server.port, **LONG) for _ in range(5)]
    os.kill(engine, signal.SIGKILL)
    wait_until(lambda: status_of_health(server) in ((503, {"status": "dead"}), None))
    assert {tuple(stream.to_the_end()) for stream in streams} == {("error",)}
    assert server.process.wait(30) == 1
    assert "killed by SIGKILL" in server.log.read_text()


def test_a_server_that_is_killed_leaves_no_engine(server: LiveServer) -> None:
    engine = engine_of(server)
    stream = Stream(server.port, **LONG)
    server.process.kill()
    wait_until(lambda: not is_running(engine))
    assert stream.to_the_end() != "[DONE]"


def test_ctrl_c_while_loading_leaves_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "minisgl", "serve", *SMALL, "--port", str(free_port())]
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        wait_until(lambda: bool(children_of(process.pid)))
        (engine,) = children_of(process.pid)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert not is_running(engine)
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_a_model_that_is_not_there_is_one_line_and_exit_2(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "minisgl", "serve", "--model", str(tmp_path), "--port", str(free_port())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in done.stderr

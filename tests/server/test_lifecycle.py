"""The server as a process of its own, with an engine that answers by a script."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.lifecycle_server import Server, lifecycle_server
from support.streams import FOR_EVER, Stream, status_of_health, wait_until

from minisgl.llm import EngineDied
from minisgl.llm.text_threads import LONG


@contextmanager
def loading(tmp_path: Path, load_s: float, failure: Exception | None = None) -> Iterator[Server]:
    """A server that listens and loads."""
    with lifecycle_server(tmp_path / "log", load_s=load_s, failure=failure) as server:
        wait_until(lambda: status_of_health(server) is not None)
        yield server


@contextmanager
def serving(tmp_path: Path, drain_timeout: float = 30) -> Iterator[Server]:
    """One that has loaded."""
    with lifecycle_server(tmp_path / "log", drain_timeout=drain_timeout) as server:
        wait_until(server.is_healthy)
        yield server


def test_health_is_503_while_loading_and_200_after(tmp_path: Path) -> None:
    with loading(tmp_path, 0.5) as server:
        assert status_of_health(server) == (503, {"status": "loading"})
        status, body = server.post("/v1/completions", FOR_EVER)
        assert (status, body["error"]["code"]) == (503, "model_loading")
        wait_until(server.is_healthy)
        log = server.log.read_text()
    assert f"listening on {server.url}, loading scripted" in log
    assert "KV pool 2,048 tokens" in log
    assert "loading: weights" in log
    assert f"serving scripted on {server.url}" in log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_accepting_lets_open_streams_end_and_exits_with_0(number: int, tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        streams = [Stream(server.port) for _ in range(3)]
        server.signal(number)
        wait_until(lambda: status_of_health(server) is None)
        server.signal(signal.SIGUSR2)
        assert [stream.to_the_end() for stream in streams] == ["[DONE]"] * 3
        assert server.exit_code() == 0
    log = server.log.read_text()
    assert "shutting down: no new requests, 3 open sequences" in log
    assert "every request was answered" in log
    assert "the engine is asked to end" in log, "it was killed, while it may have been writing something"
    assert "Traceback" not in log


def test_streams_that_outlast_the_drain_timeout_end_with_an_error_and_exit_is_0(tmp_path: Path) -> None:
    with serving(tmp_path, drain_timeout=0.2) as server:
        streams = [Stream(server.port) for _ in range(3)]
        server.signal(signal.SIGTERM)
        assert {tuple(stream.to_the_end()) for stream in streams} == {("error",)}
        assert server.exit_code() == 0
    assert "time is up" in server.log.read_text()


def test_long_texts_that_outlast_the_drain_timeout_are_waited_for_no_longer_and_exit_is_0(tmp_path: Path) -> None:
    with serving(tmp_path, drain_timeout=0.2) as server, ThreadPoolExecutor(2) as clients:
        answers = [clients.submit(server.post, "/tokenize", {"prompt": "x" * LONG}) for _ in range(2)]
        wait_until(lambda: "a text is tokenized" in server.log.read_text())
        server.signal(signal.SIGTERM)
        assert server.exit_code() == 0
        assert {(status, body["error"]["code"]) for status, body in (answer.result() for answer in answers)} == {
            (503, "server_shutting_down")
        }
    log = server.log.read_text()
    assert log.count("a text is tokenized") == 1, "the one that waited in line was begun"
    assert "the engine is asked to end" in log
    assert "Traceback" not in log


def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        stream = Stream(server.port)
        server.signal(signal.SIGTERM)
        wait_until(lambda: status_of_health(server) is None)
        server.signal(signal.SIGTERM)
        assert server.exit_code() == 128 + signal.SIGTERM
        assert stream.to_the_end()["choices"], "a stream that was cut has no end"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_loading_ends_at_once(number: int, tmp_path: Path) -> None:
    with loading(tmp_path, 3600) as server:
        server.signal(number)
        assert server.exit_code() == 0
    assert "Traceback" not in server.log.read_text()


def test_what_cannot_be_loaded_ends_the_server_with_its_reason(tmp_path: Path) -> None:
    with loading(tmp_path, 0.5, ValueError("no model has the alias 'nonsense'")) as server:
        assert server.exit_code() not in (0, None)
    assert "ValueError: no model has the alias 'nonsense'" in server.log.read_text().splitlines()[-1]


def test_an_engine_that_breaks_while_loading_is_told_and_the_process_fails(tmp_path: Path) -> None:
    with loading(tmp_path, 0.5, EngineDied("the engine died: killed by SIGKILL")) as server:
        wait_until(lambda: status_of_health(server) == (503, {"status": "dead"}))
        assert server.exit_code() == 1
    log = server.log.read_text()
    assert "the engine died: killed by SIGKILL; ending" in log
    assert "Traceback" not in log


def test_when_the_engine_dies_streams_and_probes_are_told_and_the_process_fails(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        streams = [Stream(server.port) for _ in range(20)]
        server.signal(signal.SIGUSR1)
        wait_until(lambda: status_of_health(server) == (503, {"status": "dead"}))
        status, body = server.post("/v1/completions", FOR_EVER)
        assert (status, body["error"]["code"]) == (503, "engine_dead")
        assert {tuple(stream.to_the_end()) for stream in streams} == {("error",)}
        assert server.exit_code() == 1
    assert "the engine died: signal 9; ending" in server.log.read_text()


def test_an_engine_that_dies_when_it_has_loaded_but_is_not_served_yet_is_noticed(tmp_path: Path) -> None:
    with loading(tmp_path, 0.5) as server:
        server.signal(signal.SIGUSR1)
        assert server.exit_code() == 1
    assert "serving scripted" not in server.log.read_text()


def test_an_engine_that_dies_while_streams_are_drained_makes_the_process_fail(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        stream = Stream(server.port)
        server.signal(signal.SIGTERM)
        wait_until(lambda: status_of_health(server) is None)
        server.signal(signal.SIGUSR1)
        assert "error" in stream.to_the_end()
        assert server.exit_code() == 1


def test_a_port_in_use_is_named_before_anything_is_loaded(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with lifecycle_server(tmp_path / "log", port=port) as server:
            assert server.exit_code() not in (0, None)
    log = server.log.read_text()
    assert f"port {port} on 127.0.0.1 is in use" in log.splitlines()[-1]
    assert "loading" not in log

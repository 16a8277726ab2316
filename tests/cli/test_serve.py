from __future__ import annotations

import io
import logging
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from support.engine_info import engine_info

from minisgl.cli.terminal_reporter import TerminalReporter, make_reporter
from minisgl.env import ENV
from minisgl.server.config import ServerConfig
from minisgl.server.reporter import Reporter, facts_of

INFO = engine_info(max_seq_len=8192, pool_len=65536, page_size=16, policy="lpm", max_overtakes=9, reserve="full")


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """What `serve` was called with, instead of calling it."""
    calls = SimpleNamespace()

    def serve(config: Any, server: Any, start_engine: Any, reporter: Any) -> int:
        calls.config, calls.server = config, server
        return 0

    monkeypatch.setattr("minisgl.server.serve.serve", serve)
    return calls


def test_flags_of_engine_and_server_reach_it(run, served) -> None:
    done = run(
        "serve", "--model", "org/m", "--max-running", "4", "--port", "9", "--cors-origin", "a", "--cors-origin", "b"
    )
    assert done.code == 0
    assert (served.config.engine.model, served.config.engine.max_running_req) == ("org/m", 4)
    assert (served.server.port, served.server.cors_origins) == (9, ("a", "b"))
    assert served.server.metrics


def test_the_key_may_come_from_the_environment_and_the_flag_wins(run, served, monkeypatch) -> None:
    monkeypatch.setattr(ENV.API_KEY, "value", "from-the-environment")
    run("serve")
    assert served.server.api_key == "from-the-environment"
    run("serve", "--api-key", "from-the-flag")
    assert served.server.api_key == "from-the-flag"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--port", "70000"), "--port=70000"),
        (("--drain-timeout", "-1"), "--drain-timeout=-1.0"),
        (("--tensor-parallel-size", "0"), "--tensor-parallel-size=0 is not an integer of at least 1"),
        (("--max-running", "0"), "--max-running=0 is not an integer of at least 1"),
        (("--cache-type", "naive", "--lookahead", "9"), "--lookahead=9 does nothing with --cache-type='naive'"),
    ],
)
def test_a_wrong_flag_is_one_line_and_exit_2(run, served, flags: tuple[str, ...], words: str) -> None:
    done = run("serve", *flags)
    assert done.code == 2
    assert done.err.startswith(f"error: {words}")
    assert not vars(served)


@pytest.mark.parametrize(
    ("command", "flag", "words"),
    [(("serve",), "--policy", "fcfs, lpm"), (("bench", "serve"), "--dataset", "random, shared-prefix")],
)
def test_a_word_that_is_no_choice_is_a_usage_error_that_lists_them(run, served, command, flag: str, words: str) -> None:
    done = run(*command, flag, "foo")
    assert done.code == 2
    said = " ".join(done.err.replace("│", " ").split())
    assert f"Invalid value for '{flag}': 'foo' is not one of {words}" in said


def test_a_port_in_use_is_one_line_and_exit_2(run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("serve", "--port", str(port))
    assert (done.code, done.err) == (2, f"error: port {port} on 127.0.0.1 is in use; --port takes another one\n")


def test_the_predecessors_command_line_serves(run, served) -> None:
    done = run("--model", "org/m", "--port", "9")
    assert done.code == 0
    assert (served.config.engine.model, served.server.port) == ("org/m", 9)


def test_flags_of_the_shell_and_of_the_server_do_not_mix(run, served) -> None:
    done = run("--model", "m", "--temperature", "1")
    assert (done.code, done.err) == (
        2,
        "error: --temperature: only for --shell; a request to the server says it itself\n",
    )
    done = run("--model", "m", "--shell", "--port", "9")
    assert (done.code, done.err) == (2, "error: --port: only for the HTTP server, which --shell does not start\n")


def test_a_missing_extra_is_named() -> None:
    code = "import sys; sys.modules['uvicorn'] = None; from minisgl.cli import main; main(['serve'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'minisgl[server]' (uvicorn is missing)" in done.stderr


def test_on_a_terminal_the_start_is_drawn_with_what_auto_became() -> None:
    screen = io.StringIO()
    reporter = TerminalReporter(Console(file=screen, width=100))
    reporter.loading("http://127.0.0.1:9", "some[model]")
    reporter.progress("weights")
    reporter.ready("http://127.0.0.1:9", "some[model]", INFO, 2.5)
    reporter.close()
    for words in (
        "some[model], loaded in 2.5 s",
        "float32 on cpu",
        "65,536 tokens in pages of 16",
        "http://127.0.0.1:9/v1",
        "http://127.0.0.1:9/ ",
    ):
        assert words in screen.getvalue()


def test_a_server_without_a_page_names_none() -> None:
    screen = io.StringIO()
    TerminalReporter(Console(file=screen, width=100), has_page=False).ready("http://127.0.0.1:9", "m", INFO, 2.5)
    assert "http://127.0.0.1:9/v1" in screen.getvalue()
    assert "page " not in screen.getvalue()


def test_the_start_says_who_is_next_and_what_goes_first() -> None:
    facts = facts_of(INFO)
    assert facts["policy"] == "lpm, max-overtakes 9, eviction lru, look-ahead 256, reserve full"
    assert facts["runs"] == "64 sequences at once"


def test_the_start_says_nothing_of_eviction_where_nothing_is_cached() -> None:
    facts = facts_of(replace(INFO, cache_type="naive", max_running_req=1))
    assert facts["policy"] == "lpm, max-overtakes 9, reserve full"
    assert facts["runs"] == "1 sequence at once"


def test_the_start_warns_of_a_pool_smaller_than_the_context(caplog: pytest.LogCaptureFixture) -> None:
    Reporter().small_pool(INFO)
    assert not caplog.messages
    Reporter().small_pool(replace(INFO, pool_len=1024))
    assert "holds 1,024 tokens, fewer than the context of 8,192" in caplog.text


def test_the_start_says_what_the_model_s_files_advise(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "minisgl"):
        Reporter().sampling({})
        assert not caplog.messages
        Reporter().sampling({"temperature": 0.6, "top_k": 20})
    assert "does not say: temperature 0.6, top_k 20, as the model's files advise" in caplog.text


def test_a_start_that_fails_leaves_the_terminal_as_it_was() -> None:
    """With its cursor, which is hidden while something is drawn."""
    screen = io.StringIO()
    reporter = TerminalReporter(Console(file=screen, force_terminal=True))
    reporter.loading("http://127.0.0.1:9", "m")
    reporter.close()
    hidden, shown = screen.getvalue().rfind("\x1b[?25l"), screen.getvalue().rfind("\x1b[?25h")
    assert 0 <= hidden < shown


def test_lines_are_logged_where_no_terminal_is_or_json_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert type(make_reporter(ServerConfig())) is Reporter
    monkeypatch.setattr("sys.stderr", SimpleNamespace(isatty=lambda: True, write=len, flush=bool))
    assert type(make_reporter(ServerConfig())) is TerminalReporter
    assert type(make_reporter(ServerConfig(log_json=True))) is Reporter

"""`minisgl profile`: a trace of a running server, over its API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.acting_link import ActingLink
from support.chrome_trace import check_trace, read_trace, slices_of, states_of
from support.page_server import page_server
from support.scripted_link import make_engine_client
from support.server_app import make_app, make_state

from minisgl.cli import profile
from minisgl.server.config import ServerConfig


@pytest.fixture(autouse=True)
def _in_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "POLL_S", 0.01)


def recorded(run: Any, link: ActingLink, path: Path, *flags: str, seconds: str = "0.1", **state: Any) -> Any:
    app = make_app(make_state(**{"engine": make_engine_client(link=link), **state}))
    with page_server(app) as url:
        return run("profile", "--url", url, "--seconds", seconds, "--output", str(path), *flags)


def test_what_the_engine_does_meanwhile_is_written_without_a_gap(run: Any, tmp_path: Path) -> None:
    link, path = ActingLink(), tmp_path / "trace.json"
    done = recorded(run, link, path)
    assert done.code == 0, done.err
    events = read_trace(path)
    check_trace(events)
    steps = [each["args"]["step"] for each in slices_of(events)["device"]]
    assert steps == list(range(10, 10 + 2 * (link.looks - 1)))
    assert f"{len(steps)} steps in {link.looks - 1}.0 s, the device at work for 75% of it; 3 requests\n" in done.out
    assert "missing" not in done.out
    assert "ui.perfetto.dev" in done.out
    assert [state for state, _, _ in states_of(events, 1)] == ["decode"]
    assert [state for state, _, _ in states_of(events, 3)] == ["waiting"]


def test_steps_that_were_gone_are_told(run: Any, tmp_path: Path) -> None:
    link = ActingLink(steps_a_look=5, kept=3)
    done = recorded(run, link, tmp_path / "trace.json")
    assert f"; {2 * (link.looks - 1)} steps were too many to be asked for in time and are missing" in done.out


def test_a_server_that_starts_anew_ends_it(run: Any, tmp_path: Path) -> None:
    done = recorded(run, ActingLink(restarts_at=3), tmp_path / "trace.json", seconds="60")
    assert done.code == 0
    assert done.out.startswith("4 steps in 2.0 s")
    assert "it ends where the server was started anew" in done.out
    check_trace(read_trace(tmp_path / "trace.json"))


def test_a_server_that_does_not_answer_for_a_while_is_asked_again(run: Any, tmp_path: Path) -> None:
    link = ActingLink(fails_at=[3])
    done = recorded(run, link, tmp_path / "trace.json", seconds="1")
    assert (done.code, "early" in done.out, "missing" in done.out) == (0, False, False)
    assert done.out.startswith(f"{2 * (link.looks - 1)} steps")
    check_trace(read_trace(tmp_path / "trace.json"))


def test_of_a_server_that_is_gone_there_is_a_whole_trace_until_then(run: Any, tmp_path: Path) -> None:
    done = recorded(run, ActingLink(fails_at=range(3, 1000)), tmp_path / "trace.json", seconds="1")
    assert done.code == 0
    assert done.out.startswith("2 steps in 1.0 s")
    assert "; it ends early: the engine has died\n" in done.out
    check_trace(read_trace(tmp_path / "trace.json"))


@pytest.mark.parametrize("seconds", ["inf", "nan", "-1", "1e400"])
def test_no_number_of_seconds_is_refused_before_anything_is_written(run: Any, tmp_path: Path, seconds: str) -> None:
    done = recorded(run, ActingLink(), tmp_path / "trace.json", seconds=seconds)
    assert done.code == 2
    assert "Invalid value for '--seconds'" in done.err
    assert not (tmp_path / "trace.json").exists()


def test_the_key_is_sent_and_wanted(run: Any, tmp_path: Path) -> None:
    config, path = ServerConfig(api_key="k"), tmp_path / "trace.json"
    assert recorded(run, ActingLink(), path, "--api-key", "k", config=config).code == 0
    refused = recorded(run, ActingLink(), path, "--api-key", "no", config=config)
    assert refused.code == 2
    assert "key" in refused.err


def test_what_cannot_be_is_an_error(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    assert "does a server run there?" in run("profile", "--url", "127.0.0.1:1", "--output", str(path)).err
    assert not path.exists()
    assert "this is a folder" in recorded(run, ActingLink(), tmp_path).err
    loading = recorded(run, ActingLink(), path, engine=None)
    assert (loading.code, "the model is being loaded" in loading.err) == (2, True)

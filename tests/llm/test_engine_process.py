"""What an engine's process says of an engine that cannot be loaded, and what it leaves to the log."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from minisgl.llm import LLMConfig, engine_process
from minisgl.llm.engine_process import EngineProcess
from minisgl.llm.lifeline import PARENT_DIED
from minisgl.message import EngineFailed


class Outbox:
    def __init__(self) -> None:
        self.sent: list[Any] = []

    def send(self, messages: Sequence[Any]) -> None:
        self.sent += messages


def fail_with(error: Exception, monkeypatch: pytest.MonkeyPatch) -> EngineFailed:
    """What the parent hears when this is raised while the engine loads."""

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(engine_process, "resolve_model", fail)
    outbox: Any = Outbox()
    inbox: Any = None
    assert EngineProcess(LLMConfig.from_kwargs(model="m"), inbox, outbox).run() == 1
    assert isinstance(outbox.sent[-1], EngineFailed)
    return outbox.sent[-1]


@pytest.mark.parametrize("error", [ValueError("no model 'm'"), FileNotFoundError("no model 'm'")])
def test_what_the_user_can_mend_is_told_in_its_own_words(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert fail_with(error, monkeypatch) == EngineFailed("no model 'm'", by_user=True)
    assert caplog.records == []


@pytest.mark.parametrize("error", [KeyError("q_proj"), TypeError("NoneType"), AttributeError("x"), RuntimeError("y")])
def test_what_only_we_can_mend_is_logged_with_its_traceback(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert fail_with(error, monkeypatch) == EngineFailed(f"{type(error).__name__}: {error}", by_user=False)
    (record,) = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[1] is error


@pytest.mark.parametrize("heard", [b"", b'{"model": "smol'])
def test_a_parent_that_dies_before_it_said_everything_leaves_no_folder(heard: bytes, tmp_path: Path) -> None:
    folder = tmp_path / "sockets"
    folder.mkdir()
    command = [sys.executable, "-m", "minisgl.llm.engine_process", str(folder)]
    done = subprocess.run(command, input=heard, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (PARENT_DIED, b"")
    assert not folder.exists()

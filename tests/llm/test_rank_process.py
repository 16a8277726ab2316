"""What a rank says of a model that it cannot load, and that it ends with a parent that is gone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from minisgl.llm import LLMConfig, rank_process
from minisgl.llm.lifeline import PARENT_DIED
from minisgl.llm.rank_children import shared_cores
from minisgl.message import LocalQueue, ShutdownMsg
from minisgl.message.plans import RankFailed, RankOrder, RankStarted


class Outbox:
    def __init__(self) -> None:
        self.sent: list[Any] = []

    def send(self, messages: Sequence[Any]) -> None:
        self.sent += messages


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("no room for one page"), RankFailed(1, "no room for one page", by_user=True)),
        (KeyError("q_proj"), RankFailed(1, "KeyError: 'q_proj'")),
    ],
)
def test_rank_0_hears_what_went_wrong(error: Exception, said: RankFailed, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(rank_process, "read_model", fail)
    outbox: Any = Outbox()
    inbox: Any = None
    config = LLMConfig.from_kwargs(model="m", tensor_parallel_size=2)
    assert rank_process.RankProcess(1, config, inbox, outbox).run() == 1
    assert outbox.sent == [said]


def test_a_rank_that_is_told_to_end_before_it_has_loaded_ends_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_process, "read_model", lambda *_: None)
    outbox, inbox = Outbox(), LocalQueue[RankOrder]()
    inbox.send([ShutdownMsg()])
    config = LLMConfig.from_kwargs(model="m", tensor_parallel_size=2)
    assert rank_process.RankProcess(1, config, inbox, outbox).run() == 0  # type: ignore[arg-type]
    assert outbox.sent == [RankStarted(1)]


def test_engines_that_end_in_any_order_leave_all_cores_to_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = torch.get_num_threads()
    first, second = shared_cores(2), shared_cores(2)
    try:
        torch.set_num_threads(2)
        assert first.__enter__() == second.__enter__() == "1"
        first.__exit__(None, None, None)
        second.__exit__(None, None, None)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_parent_that_dies_before_it_said_anything_leaves_neither_process_nor_folder(tmp_path: Path) -> None:
    folder = tmp_path / "sockets"
    folder.mkdir()
    command = [sys.executable, "-m", rank_process.__name__, str(folder)]
    done = subprocess.run(command, input=b"", capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (PARENT_DIED, b"")
    assert not folder.exists()

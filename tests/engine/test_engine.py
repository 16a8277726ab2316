"""Which batches the engine has to compute call by call, and what it leaves when one could not be."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from minisgl.core import Batch, ForwardInput, PageTableUpdate, Req, SamplingParams
from minisgl.engine.engine import Engine, wants_prompt_logprobs
from minisgl.engine.graphs import NO_UPDATE
from minisgl.engine.inputs import PageTable, StepInputs
from minisgl.engine.sampler import Sampler
from minisgl.engine.step import Decoded
from minisgl.kernel import BROKEN


def req(cached_len: int, prompt_logprobs: int | None, prompt_len: int = 8) -> Req:
    ids = np.zeros(20, np.int32)
    params = SamplingParams(prompt_logprobs=prompt_logprobs)
    return Req(0, 0, cached_len, cached_len + 1, 20, prompt_len, ids, params)


def test_a_prompt_token_that_comes_alone_still_has_a_logprob_to_give():
    assert wants_prompt_logprobs(Batch((req(9, None), req(3, 0)), NO_UPDATE, step=0))
    assert wants_prompt_logprobs(Batch((req(3, 0), req(3, None)), NO_UPDATE, step=0))


def test_decodes_have_given_theirs():
    assert not wants_prompt_logprobs(Batch((req(9, 0), req(8, 2), req(3, None)), NO_UPDATE, step=0))


def test_cells_of_a_batch_that_had_no_memory_reach_the_device_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not sent again, and some may belong to requests that were not in it."""
    engine = Engine.__new__(Engine)
    engine.page_table = PageTable(2, 4, page_size=1, device=torch.device("cpu"))
    engine.page_table.device = engine.page_table.device.clone()  # a device of its own, as a GPU is
    engine._step = SimpleNamespace(last_tokens=torch.tensor([5, 6]))  # type: ignore[assignment]

    def no_memory(_: Batch) -> None:
        raise MemoryError("none left")

    monkeypatch.setattr(engine, "_forward", no_memory)
    cells = PageTableUpdate(*np.array([[1, 3, 7]], np.int32).T)
    result = engine.forward(ForwardInput(Batch((req(9, None),), cells, step=0))).result()
    assert "out of memory" in result.errors[0]
    assert engine.page_table.device.tolist() == [[0, 0, 0, 0], [0, 0, 0, 7]]
    assert engine._step.last_tokens.tolist() == [-1, -1]


def test_rows_of_a_replayed_batch_that_want_more_are_sampled_again_and_the_others_kept() -> None:
    """Hidden states stand in for logits here. A broken row stays broken, whatever it wants."""
    hidden = torch.zeros(4, 6)  # of a batch of three, padded
    hidden[:, 2] = 1
    hidden[2, 5] = torch.nan
    params = (SamplingParams(), SamplingParams(logit_bias={4: 9.0}, logprobs=0), SamplingParams(logprobs=0))
    ids = np.zeros(9, np.int32)
    batch = Batch(tuple(Req(row, row, 8, 9, 20, 4, ids, p) for row, p in enumerate(params)), NO_UPDATE, step=0)
    inputs = StepInputs(*torch.zeros(5, 4, dtype=torch.int32))
    tokens = torch.tensor([3, 2, BROKEN, 7], dtype=torch.int32)
    engine = Engine.__new__(Engine)
    engine.device, engine.sampler = torch.device("cpu"), Sampler(6, "cpu")
    engine.model = SimpleNamespace(compute_logits=lambda rows: rows)  # type: ignore[assignment]
    result = engine._take_decoded(batch, Decoded(inputs, hidden, tokens)).result()
    assert result.next_tokens.tolist() == [3, 4, -1]
    assert tokens.tolist() == [3, 4, BROKEN, 7]
    assert [entry and entry.token_id for entry in result.logprobs] == [None, 4, None]
    assert list(result.errors) == [2]

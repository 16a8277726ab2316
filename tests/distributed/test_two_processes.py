"""A tiny model shared by two processes over gloo gives what one process gives, on both of them."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support.dense_attention import all_logits, make_model, read_json, tiny_weights
from support.tp_rank import run_rank

from minisgl.distributed import Meeting, TPInfo


@pytest.mark.parametrize("folder", ["llama_biases"])
def test_two_processes_give_the_logits_of_one(folder: str, tmp_path: Path):
    meeting = Meeting()
    args = (TPInfo(1, 2), meeting.port, folder, torch.float32, tmp_path)
    other = multiprocessing.get_context("spawn").Process(target=run_rank, args=args)
    other.start()
    run_rank(TPInfo(0, 2), meeting, folder, torch.float32, tmp_path)
    other.join(timeout=120)
    assert other.exitcode == 0
    alone = make_model(read_json(folder, "config.json"), tiny_weights(folder).items())
    expected = all_logits(alone, read_json(folder, "ref.json")["ids"])

    first, second = (load_file(tmp_path / f"rank{i}.safetensors")["logits"] for i in range(2))
    assert torch.equal(first, second)
    torch.testing.assert_close(first, expected, atol=1e-4, rtol=0)

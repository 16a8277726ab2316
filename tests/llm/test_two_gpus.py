"""Two GPUs that share a model give the tokens of one, in float32, call by call and by graphs."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.rounded_model import MODELS

from minisgl import LLM, SamplingParams
from minisgl.llm import EngineDied

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]
GREEDY = SamplingParams(max_tokens=24, ignore_eos=True)
DRAWN = SamplingParams(max_tokens=24, ignore_eos=True, temperature=0.8, top_p=0.9, seed=3)


def make_prompts() -> list[list[int]]:
    rng = np.random.default_rng(2)
    shared = rng.integers(0, 256, 70).tolist()
    return [[*shared, *rng.integers(0, 256, n).tolist()] for n in range(1, 9)] + [[7], [1] * 300]


PROMPTS = make_prompts()


def make_llm(folder: Path, **config: Any) -> LLM:
    config = {
        "dtype": "float32",
        "max_running_req": 16,
        "num_page_override": 4096,
        "max_seq_len_override": 512,
    } | config
    return LLM(str(folder), device="cuda", **config)


def tokens(llm: LLM, params: SamplingParams) -> list[list[int]]:
    return [output["token_ids"] for output in llm.generate(PROMPTS, params)]


@pytest.mark.parametrize(("model", "graphs", "page_size"), [("llama-64", 16, 1), ("qwen3-128", 0, 16)])
def test_tokens_are_those_of_one_gpu(model: str, graphs: int, page_size: int, tmp_path: Path) -> None:
    switches = {"cuda_graph_max_bs": graphs, "page_size": page_size, "max_extend_tokens": 128}
    folder = MODELS[model](tmp_path)
    with make_llm(folder, **switches) as alone:
        expected = [tokens(alone, params) for params in (GREEDY, GREEDY, DRAWN)]
    with make_llm(folder, **switches, tensor_parallel_size=2) as shared:
        assert [tokens(shared, params) for params in (GREEDY, GREEDY, DRAWN)] == expected
        shared.cache_manager.check_integrity()


def test_a_rank_that_is_killed_ends_the_engine_and_frees_what_waits_for_it(tmp_path: Path) -> None:
    with make_llm(MODELS["llama-64"](tmp_path), tensor_parallel_size=2) as llm:
        stream = llm.generate(PROMPTS[0], SamplingParams(max_tokens=400, ignore_eos=True), stream=True)
        next(stream)
        leader = llm._parts.leader
        assert leader is not None
        begin = time.monotonic()
        os.kill(leader._followers._followers[0].process.pid, signal.SIGKILL)
        with pytest.raises(EngineDied, match="rank 1 ended: killed by SIGKILL"):
            list(stream)
        assert time.monotonic() - begin < 10

"""Two processes that share a tiny model give what one gives; and when one of them fails, nobody waits."""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.dense_attention import read_json
from support.failing_rank import FAIL_AT, out_of_memory_at
from support.serving import StingyReserve
from support.tiny_model import make_tiny_model
from support.two_ranks import make_tiny_qwen3

from minisgl import LLM, SamplingParams
from minisgl.core import ForwardInput
from minisgl.engine.config import EngineConfig
from minisgl.engine.spec import resolve
from minisgl.llm import EngineDied, LLMConfig, RemoteEngine, followers, rank_children
from minisgl.models import ModelConfig
from minisgl.scheduler.reserve import RESERVES
from minisgl.utils.hardware import Gpu, find_hardware

MAX_TOKENS = 12
GREEDY = SamplingParams(max_tokens=MAX_TOKENS, ignore_eos=True)
LONG = SamplingParams(max_tokens=400, ignore_eos=True)
SWITCHES = {
    "llama": {"overlap": "on", "page_size": 1, "max_extend_tokens": 100, "num_page_override": 420},
    "qwen3": {"overlap": "off", "page_size": 16, "max_extend_tokens": 64, "num_page_override": 28},
}


def make_prompts() -> list[list[int]]:
    """Lengths from 1 to 150, some sharing prefixes."""
    rng = np.random.default_rng(0)
    base = rng.integers(0, 256, 150).tolist()
    fresh = [rng.integers(0, 256, n).tolist() for n in (1, 2, 17, 40)]
    return [*fresh, base, base[:64] + fresh[2], base[:70] + fresh[3], base[:64]]


PROMPTS = make_prompts()


@pytest.fixture(scope="module", params=["llama", "qwen3"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LLM, LLM]]:
    """The same model in one process and in two."""
    make = make_tiny_model if request.param == "llama" else make_tiny_qwen3
    path = str(make(tmp_path_factory.mktemp(request.param)))
    switches: dict[str, Any] = SWITCHES[request.param]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(RESERVES, "estimate", StingyReserve)  # so that pages run out
        with LLM(path, **switches) as alone, LLM(path, **switches, tensor_parallel_size=2) as shared:
            yield alone, shared


@pytest.fixture(autouse=True)
def _whole(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "pair" in request.fixturenames:
        _, shared = request.getfixturevalue("pair")
        shared.cache_manager.check_integrity()


def tokens(llm: LLM, prompts: list[list[int]], params: Any = GREEDY) -> list[list[int]]:
    return [out["token_ids"] for out in llm.generate(prompts, params)]


def logprobs(output: Any) -> list[float]:
    """Of all tokens that have some."""
    entries = [*output.get("prompt_logprobs", ()), *output.get("logprobs", ())]
    return [entry.logprob for entry in entries if entry is not None]


def test_tokens_are_those_of_one_rank_cold_and_warm_together_and_alone(pair: tuple[LLM, LLM]) -> None:
    alone, shared = pair
    expected = tokens(alone, PROMPTS)
    assert tokens(shared, PROMPTS) == expected
    assert tokens(shared, PROMPTS) == expected
    assert [tokens(shared, [prompt])[0] for prompt in PROMPTS[:4]] == expected[:4]


def test_every_sampling_option_gives_what_it_gives_on_one_rank(pair: tuple[LLM, LLM]) -> None:
    options: list[dict[str, Any]] = [
        {"temperature": 0.8, "seed": 5},
        {"temperature": 1.2, "seed": 6, "top_k": 20, "top_p": 0.9, "min_p": 0.01},
        {"repetition_penalty": 1.3, "frequency_penalty": 0.5, "presence_penalty": 0.2},
        {"logit_bias": {17: 4.0, 300 - 1: -9.0}, "min_tokens": 5},
        {"logprobs": 3, "prompt_logprobs": 2},
        {"temperature": 0.7, "seed": 7, "n": 3},
        {"stop_token_ids": [10, 11]},
    ]
    params = [SamplingParams(max_tokens=MAX_TOKENS, **option) for option in options]
    alone, shared = (llm.generate(PROMPTS[: len(params)], params) for llm in pair)
    for expected, got in zip(alone, shared, strict=True):
        assert got["token_ids"] == expected["token_ids"]
        assert [c["token_ids"] for c in got.get("choices", [])] == [c["token_ids"] for c in expected.get("choices", [])]
        assert logprobs(got) == pytest.approx(logprobs(expected), abs=1e-4)


def test_a_stream_that_is_left_early_disturbs_nobody(pair: tuple[LLM, LLM]) -> None:
    alone, shared = pair
    stream = shared.generate(PROMPTS[:3], LONG, stream=True)
    for _ in range(5):
        next(stream)
    stream.close()
    assert tokens(shared, PROMPTS[3:]) == tokens(alone, PROMPTS[3:])


def test_requests_that_give_up_their_pages_and_come_back_have_the_same_tokens(pair: tuple[LLM, LLM]) -> None:
    alone, shared = pair
    prompts = [[i] * 60 for i in range(6)]
    params = SamplingParams(max_tokens=20, ignore_eos=True)
    before = shared.stats()["num_retracted"]
    assert tokens(shared, prompts, params) == tokens(alone, prompts, params)
    assert shared.stats()["num_retracted"] > before


@pytest.mark.parametrize("num_gpus", [1, 2])
def test_every_rank_has_a_gpu_of_its_own(num_gpus: int) -> None:
    hardware = replace(find_hardware(), gpus=(Gpu("a GPU", 1 << 30, (9, 0)),) * num_gpus)
    config, model = EngineConfig(tensor_parallel_size=2), ModelConfig.from_hf(read_json("llama_biases", "config.json"))
    if num_gpus == 2:
        assert str(resolve(config, model, hardware, rank=1).device) == "cuda:1"
    else:
        with pytest.raises(ValueError, match="tensor_parallel_size=2, but torch finds 1 CUDA devices"):
            resolve(config, model, hardware)


# ---- what befalls one rank


def children_of(pid: int) -> list[int]:
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for path in lists for child in path.read_text().split()]


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 60
    while Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1][:3]:
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_tiny_model(tmp_path_factory.mktemp("tiny")))


def follower_pid(llm: LLM) -> int:
    leader = llm._parts.leader
    assert leader is not None
    (follower,) = leader._followers._followers
    return follower.process.pid


def test_a_rank_that_is_killed_ends_the_engine_at_once_and_says_so(tiny: str) -> None:
    with LLM(tiny, num_page_override=2048, tensor_parallel_size=2) as llm:
        stream = llm.generate(PROMPTS[0], LONG, stream=True)
        next(stream)
        begin = time.monotonic()
        os.kill(follower_pid(llm), signal.SIGKILL)
        with pytest.raises(EngineDied, match="rank 1 ended: killed by SIGKILL"):
            list(stream)
        assert time.monotonic() - begin < 30  # under a second, if the machine has time for it
        with pytest.raises(EngineDied, match="rank 1 ended: killed by SIGKILL"):
            llm.generate("hello")


def test_a_rank_that_dies_while_nobody_asks_is_noticed(tiny: str) -> None:
    with LLM(tiny, num_page_override=2048, tensor_parallel_size=2) as llm:
        os.kill(follower_pid(llm), signal.SIGKILL)
        llm._worker._thread.join(timeout=60)
        with pytest.raises(EngineDied, match="rank 1 ended: killed by SIGKILL"):
            llm.generate("hello")


def test_nobody_waits_for_a_device_that_does_not_answer(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followers, "NOTICE_S", 0.2)
    answers = threading.Event()
    with LLM(tiny, num_page_override=2048, tensor_parallel_size=2) as llm:
        leader = llm._parts.leader
        assert leader is not None
        pid = follower_pid(llm)

        def get_stuck(_: ForwardInput) -> None:
            os.kill(pid, signal.SIGKILL)
            answers.wait()

        monkeypatch.setattr(leader, "_forward", get_stuck)
        with pytest.raises(EngineDied, match="rank 1 ended: killed by SIGKILL"):
            llm.generate("hello")
        assert llm.stats()["num_batches"] == 1
        llm.shutdown()
        assert llm._worker._thread.is_alive()
        answers.set()
        llm._worker._thread.join(timeout=20)


def test_no_memory_on_all_ranks_fails_a_batch_and_on_one_alone_the_engine(
    tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rank_children, "MODULE", "support.failing_rank")
    monkeypatch.setattr(followers, "AGREE_S", 3.0)
    monkeypatch.setenv(FAIL_AT, "1 20")
    with LLM(tiny, num_page_override=2048, tensor_parallel_size=2) as llm, LLM(tiny, num_page_override=2048) as alone:
        leader = llm._parts.leader
        assert leader is not None
        leader._forward = out_of_memory_at(leader._forward, {1})
        (failed,) = llm.generate(PROMPTS[0], GREEDY)
        assert failed["error"] == "out of memory in a test"
        assert tokens(llm, PROMPTS[:4]) == tokens(alone, PROMPTS[:4])
        with pytest.raises(EngineDied, match="rank 1 alone ran out of memory in step 20"):
            llm.generate(PROMPTS[0], LONG)


@pytest.mark.parametrize("elsewhere", [False, True], ids=["alone", "and elsewhere on rank 1"])
def test_no_memory_on_rank_0_ends_the_engine(elsewhere: bool, tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followers, "AGREE_S", 5.0 if elsewhere else 0.2)
    if elsewhere:
        monkeypatch.setattr(rank_children, "MODULE", "support.failing_rank")
        monkeypatch.setenv(FAIL_AT, "1")
    with LLM(tiny, num_page_override=2048, tensor_parallel_size=2) as llm:
        leader = llm._parts.leader
        assert leader is not None
        llm.spec.tp.joined.num_calls += elsewhere  # as if it had come one collective further
        leader._forward = out_of_memory_at(leader._forward, {1})
        with pytest.raises(EngineDied, match="rank 0 ran out of memory in step 1"):
            llm.generate(PROMPTS[0], GREEDY)


def test_an_engine_process_ends_its_ranks_whichever_of_them_is_killed(tiny: str) -> None:
    config = LLMConfig.from_kwargs(model=tiny, num_page_override=2048, tensor_parallel_size=2)
    reasons: queue.SimpleQueue[str] = queue.SimpleQueue()
    engine = RemoteEngine(config, on_death=reasons.put)
    try:
        info = engine.ready.result(timeout=60)
        assert info.device == "2 x cpu"
        (rank,) = children_of(info.pid)
        os.kill(rank, signal.SIGKILL)
        assert "rank 1 ended: killed by SIGKILL" in reasons.get(timeout=60)
    finally:
        engine.shutdown()
    engine = RemoteEngine(config)
    try:
        (rank,) = children_of(engine.ready.result(timeout=60).pid)
        folder = Path(Path(f"/proc/{rank}/cmdline").read_bytes().split(b"\0")[-2].decode())
        assert folder.name.startswith("minisgl-")
        os.kill(engine.pid, signal.SIGKILL)
        wait_until_gone(rank)
        assert not folder.exists()
    finally:
        engine.shutdown()


def test_a_rank_that_cannot_start_says_how_it_ended(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_children, "MODULE", "support.no_such_module")
    with pytest.raises(RuntimeError, match="rank 1 ended: exit code 1"):
        LLM(tiny, tensor_parallel_size=2)

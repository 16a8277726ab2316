"""The same tokens on a GPU as on the CPU, in float32, with every switch; where not marked gpu, the CPU stands in."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.devices import TARGETS, graphs_for, require_backend, share_eagerly
from support.rounded_model import MAX_POSITIONS, make_llama_64

from minisgl import LLM, SamplingParams

GREEDY = SamplingParams(max_tokens=12, ignore_eos=True)
MAX_RUNNING = 24
TARGET = pytest.mark.parametrize(("device", "backend"), TARGETS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_llama_64(tmp_path_factory.mktemp("llama-64"))


def make_prompts() -> list[list[int]]:
    """Lengths of 1 to 150, and 16 behind one prefix of 70."""
    rng = np.random.default_rng(1)
    base, shared = rng.integers(0, 256, 150).tolist(), rng.integers(0, 256, 70).tolist()
    group = [shared + rng.integers(0, 256, n).tolist() for n in range(1, 17)]
    return [base, [*base[:80], 3, 4], rng.integers(0, 256, 33).tolist(), [7], *group, base]


PROMPTS = make_prompts()


def make_llm(folder: Path, device: str, backend: str, page_size: int = 1, graphs: int = 64, **config: Any) -> LLM:
    """graphs: the largest number of rows that is captured; 0 for none."""
    config |= graphs_for(backend, graphs)
    config = {
        "max_running_req": MAX_RUNNING,
        "max_seq_len_override": 256,
        "num_page_override": 4096 // page_size,
    } | config
    return LLM(str(folder), device=device, dtype="float32", attention_backend=backend, page_size=page_size, **config)


def token_ids(llm: LLM, prompts: list[list[int]], params: Any, **options: Any) -> list[list[int]]:
    return [output["token_ids"] for output in llm.generate(prompts, params, **options)]


@pytest.fixture(scope="module")
def reference(folder: Path) -> list[list[int]]:
    with make_llm(folder, "cpu", "torch", max_running_req=1, cache_type="naive") as llm:
        return token_ids(llm, PROMPTS, GREEDY)


SWITCHES = [
    *itertools.product([1, 16], [32], ["off", "on"], [0, 64], ["auto"]),
    (1, 4096, "on", 64, "off"),
    (16, 4096, "off", 0, "off"),
    (16, 32, "on", 5, "auto"),  # most batches are larger than the largest graph
]
"""page_size, chunk, overlap, graphs, shared_prefix"""


@pytest.mark.parametrize(
    ("device", "backend", "page_size", "chunk", "overlap", "graphs", "shared_prefix"),
    [
        *(("cpu", "torch", *switches) for switches in SWITCHES if switches[3] == 0),
        *(
            pytest.param("cuda", backend, *switches, marks=pytest.mark.gpu)
            for backend in ("torch", "triton")
            for switches in SWITCHES
            if backend != "torch" or switches[3] == 0
        ),
    ],
)
def test_tokens_are_those_of_one_request_at_a_time_on_the_cpu(
    folder: Path,
    reference: list[list[int]],
    monkeypatch: pytest.MonkeyPatch,
    device: str,
    backend: str,
    page_size: int,
    chunk: int,
    overlap: str,
    graphs: int,
    shared_prefix: str,
) -> None:
    require_backend(backend, "float32")
    share_eagerly(monkeypatch)
    config = {"max_extend_tokens": chunk, "overlap": overlap, "shared_prefix": shared_prefix}
    with make_llm(folder, device, backend, page_size, graphs, **config) as llm:
        for _ in range(2):  # cold, then warm
            assert token_ids(llm, PROMPTS, GREEDY) == reference
        llm.cache_manager.check_integrity()


@pytest.mark.gpu
def test_random_tokens_do_not_depend_on_graphs_or_overlap(folder: Path) -> None:
    require_backend("triton", "float32")
    params = [
        SamplingParams(temperature=0.8, top_p=0.9 if i % 2 else 1.0, seed=i, max_tokens=12, ignore_eos=True)
        for i in range(len(PROMPTS))
    ]
    answers = []
    for graphs, overlap in ((0, "off"), (64, "on"), (5, "on")):
        with make_llm(folder, "cuda", "triton", graphs=graphs, overlap=overlap) as llm:
            answers.append(token_ids(llm, PROMPTS, params))
    assert answers[0] == answers[1] == answers[2]


@pytest.mark.gpu
def test_what_a_graph_leaves_out_is_the_same_as_without_it(folder: Path) -> None:
    """Penalties, biases, log-probabilities and plain rows beside each other in one batch."""
    require_backend("triton", "float32")
    kinds: list[dict[str, Any]] = [
        {},
        {"logprobs": 3},
        {"repetition_penalty": 1.3, "frequency_penalty": 0.5},
        {"logit_bias": {5: 3.0}},
        {"temperature": 0.7, "top_k": 20, "seed": 1},
    ]
    params = [SamplingParams(max_tokens=12, ignore_eos=True, **kinds[i % len(kinds)]) for i in range(len(PROMPTS))]
    answers = []
    for graphs in (0, 64):
        with make_llm(folder, "cuda", "triton", graphs=graphs) as llm:
            answers.append(token_ids(llm, PROMPTS, params))
    assert answers[0] == answers[1]


@TARGET
def test_a_batch_that_runs_out_of_memory_fails_alone(
    folder: Path, reference: list[list[int]], monkeypatch: pytest.MonkeyPatch, device: str, backend: str
) -> None:
    """The model says so itself here: it is asked for a prompt of 200 tokens, which no graph takes past it."""
    require_backend(backend, "float32")
    with make_llm(folder, device, backend, graphs=0) as llm:
        model = llm._parts.engine.model
        forward = model.forward

        def fail_if_long(input_ids: torch.Tensor, *args: Any) -> torch.Tensor:
            if len(input_ids) == 200:
                raise torch.OutOfMemoryError("CUDA out of memory, on purpose")
            return forward(input_ids, *args)

        monkeypatch.setattr(model, "forward", fail_if_long)
        (failed,) = llm.generate([[9] * 200], GREEDY)
        assert (failed["finish_reason"], failed["token_ids"]) == ("error", [])
        assert "out of memory" in failed["error"]
        assert token_ids(llm, PROMPTS, GREEDY) == reference
        llm.cache_manager.check_integrity()


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["torch", "triton"])
def test_an_allocator_with_nothing_left_fails_one_batch(folder: Path, reference: list[list[int]], backend: str) -> None:
    require_backend(backend, "float32")
    config = {"max_seq_len_override": MAX_POSITIONS, "num_page_override": 16_384, "max_extend_tokens": 256}
    with make_llm(folder, "cuda", backend, **config) as llm:
        first = token_ids(llm, PROMPTS, GREEDY)
        held = llm._worker.call(take_all_memory)
        try:
            outputs = llm.generate([[9] * 250] * 4, SamplingParams(max_tokens=2, prompt_logprobs=20))
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
            del held
        again = token_ids(llm, PROMPTS, GREEDY, cache_salt="afterwards")
        llm.cache_manager.check_integrity()
    assert {output["finish_reason"] for output in outputs} == {"error"}
    assert all("out of memory" in output["error"] for output in outputs)
    assert first == again == reference


def take_all_memory() -> list[torch.Tensor]:
    """Hold what the allocator has free, and let it have no more."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(torch.cuda.memory_reserved() / total)
    held: list[torch.Tensor] = []
    size = 64 << 20
    while size >= 512:
        try:
            held.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            size //= 2
    return held


@pytest.mark.gpu
def test_the_pool_is_sized_from_the_gpus_memory(folder: Path) -> None:
    with LLM(str(folder), device="cuda", memory_ratio=0.01, max_running_req=4, max_seq_len_override=512) as llm:
        assert llm._parts.overlap
        assert llm.stats()["num_pages"] == 2 * 4 * 512  # twice what all of them can use, which fits easily
        assert len(llm.generate("hello", GREEDY)[0]["token_ids"]) == 12

"""bfloat16 against float32: log-probabilities and greedy tokens of every path, backend and page size.

The reference has the same weights, which are bfloat16 numbers, and computes in float32. Each generated token is judged
given the engine's own tokens before it, so that one that differs does not spoil the rest. It need not be the
reference's best: it may lag behind by TOLERANCE. So it must be the best one wherever the best two differ by more, and
where they do not (a tie), either will do.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from support.devices import GPU_BACKENDS, GroupCount, graphs_for, require_backend, share_eagerly
from support.rounded_model import MAX_POSITIONS, MODELS, Reference

from minisgl import LLM, SamplingParams

# Logits have a spread of 1.1 to 1.6. In bfloat16 the log-probabilities of a CPU are 0.08 off at most, 0.02 in the mean
# square over a prompt. One wrong key among 300 makes that at least 0.23 and 0.053, a feature left out far more.
TOLERANCE = 0.15
MEAN_TOLERANCE = 0.035
TOP = 20
GREEDY = SamplingParams(max_tokens=10, ignore_eos=True)
WITH_LOGPROBS = SamplingParams(max_tokens=10, ignore_eos=True, logprobs=TOP)
OF_PROMPT = SamplingParams(max_tokens=1, ignore_eos=True, prompt_logprobs=TOP)
Output = dict[str, Any]


class Model(NamedTuple):
    folder: Path
    reference: Reference
    head_dim: int
    windows: bool


def make_prompts() -> list[list[int]]:
    """Lengths of 1 to 300, some with prefixes of others, and 16 behind one prefix of 320."""
    rng = np.random.default_rng(5)
    base, shared = (rng.integers(0, 256, n).tolist() for n in (300, 320))
    fresh = [rng.integers(0, 256, n).tolist() for n in (1, 2, 17, 130)]
    group = [shared + rng.integers(0, 256, n).tolist() for n in range(3, 19)]
    return [*fresh, base, base[:200] + fresh[2], base[:203] + fresh[1], *group, base]


PROMPTS = make_prompts()


@pytest.fixture(scope="module", params=list(MODELS))
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder, (*kind, head_dim) = MODELS[request.param](tmp_path_factory.mktemp(request.param)), request.param.split("-")
    return Model(folder, Reference(folder), int(head_dim), "windows" in kind)


def check_tokens(reference: Reference, outputs: Sequence[Output]) -> None:
    for prompt, output in zip(PROMPTS, outputs, strict=True):
        assert len(output["token_ids"]) == GREEDY.max_tokens
        lag = reference.lag(prompt, output["token_ids"])
        assert lag.max() <= TOLERANCE, f"a prompt of {len(prompt)}: tokens lag behind by {lag.tolist()}"


def check_logprobs(reference: Reference, outputs: Sequence[Output]) -> None:
    """Of the generated tokens, and of the best TOP beside each."""
    for prompt, output in zip(PROMPTS, outputs, strict=True):
        expected = reference.logprobs([*prompt, *output["token_ids"][:-1]])[len(prompt) - 1 :]
        check_near(output["logprobs"], expected, prompt)


def check_prompt_logprobs(reference: Reference, outputs: Sequence[Output]) -> None:
    for prompt, output in zip(PROMPTS, outputs, strict=True):
        assert output["prompt_logprobs"][0] is None
        check_near(output["prompt_logprobs"][1:], reference.logprobs(prompt)[:-1], prompt)


def check_near(got: Sequence[Any], expected: torch.Tensor, prompt: list[int]) -> None:
    """expected: [len(got), V]."""
    assert len(got) == len(expected)
    if got:
        difference = differences(got, expected)
        square = difference.square().mean().sqrt()
        assert difference.abs().max() <= TOLERANCE, f"a prompt of {len(prompt)} is off by {difference.abs().max():.3f}"
        assert square <= MEAN_TOLERANCE, f"a prompt of {len(prompt)} is off by {square:.3f} in the mean square"


def differences(got: Sequence[Any], expected: torch.Tensor) -> torch.Tensor:
    """Of the log-probabilities of every token that is named, in one row."""
    named = [(row, i, lp) for row, each in enumerate(got) for i, lp in [(each.token_id, each.logprob), *each.top]]
    rows, ids, values = zip(*named, strict=True)
    return expected[list(rows), list(ids)] - torch.tensor(values)


GPU_PATHS = [
    (1, 100_000, "off", 0),
    (16, 48, "auto", 0),
    (16, 100_000, "auto", 8),
    (1, 48, "auto", 8),
    (16, 48, "off", 64),
    (1, 100_000, "auto", 64),
]
"""page_size, chunk, shared_prefix, graphs"""


@pytest.mark.parametrize(
    ("device", "backend", "page_size", "chunk", "shared_prefix", "graphs"),
    [
        ("cpu", "torch", 1, 48, "auto", 0),
        pytest.param("cpu", "torch", 16, 100_000, "off", 0, marks=pytest.mark.nightly),
        *(
            pytest.param("cuda", backend, *path, marks=pytest.mark.gpu)
            for backend in GPU_BACKENDS
            for path in GPU_PATHS
            if backend != "torch" or path[-1] == 0
        ),
    ],
)
def test_bfloat16_is_near_float32_on_every_path(
    model: Model,
    monkeypatch: pytest.MonkeyPatch,
    device: str,
    backend: str,
    page_size: int,
    chunk: int,
    shared_prefix: str,
    graphs: int,
) -> None:
    """Cold, warm, in chunks beside decodes, with and without shared prefixes and graphs (up to so many rows)."""
    folder, reference, head_dim, windows = model
    require_backend(backend, head_dim=head_dim, windows=windows)
    share_eagerly(monkeypatch)
    with LLM(
        str(folder),
        device=device,
        dtype="bfloat16",
        attention_backend=backend,
        page_size=page_size,
        num_page_override=16_384 // page_size,
        max_running_req=40,
        max_seq_len_override=512,
        max_extend_tokens=chunk,
        shared_prefix=shared_prefix,
        **graphs_for(backend, graphs),
    ) as llm:
        sharing = GroupCount(llm)
        cold = llm.generate(PROMPTS, WITH_LOGPROBS)
        warm = llm.generate(PROMPTS, GREEDY)
        salted = llm.generate(PROMPTS, GREEDY, cache_salt="another")
        prompts = llm.generate(PROMPTS, OF_PROMPT)
        llm.cache_manager.check_integrity()
    assert (sharing.num_batches >= 10) == (shared_prefix == "auto")
    assert [out["cached_tokens"] for out in warm] == [(len(p) - 1) // page_size * page_size for p in PROMPTS]
    for outputs in (cold, warm, salted):
        check_tokens(reference, outputs)
    check_logprobs(reference, cold)
    check_prompt_logprobs(reference, prompts)


@pytest.mark.parametrize("place", [1, 100, 200, 280])
def test_the_tolerances_tell_one_wrong_key(model: Model, place: int) -> None:
    """Otherwise the test above could not fail."""
    prompt = PROMPTS[4]
    wrong = [*prompt[:place], (prompt[place] + 77) % 256, *prompt[place + 1 :]]
    check_tells(model.reference.logprobs(wrong), model.reference.logprobs(prompt))


WITHOUT: dict[str, dict[str, Any]] = {
    "windows": {"sliding_window": MAX_POSITIONS},
    "capped scores": {"attn_logit_softcapping": None},
    "capped logits": {"final_logit_softcapping": None},
    "sinks": {"has_sinks": False},
}


@pytest.mark.parametrize(
    ("model", "feature"),
    [
        ("qwen3-windows-128", "windows"),
        *(("gemma2-windows-256", feature) for feature in ("windows", "capped scores", "capped logits")),
        ("gemma3-windows-256", "windows"),
        ("gpt-oss-mxfp4-windows-64", "windows"),
        ("gpt-oss-mxfp4-windows-64", "sinks"),
    ],
    indirect=["model"],
)
def test_the_tolerances_tell_a_feature_left_out(model: Model, feature: str) -> None:
    without = Reference(model.folder, **WITHOUT[feature])
    check_tells(without.logprobs(PROMPTS[4]), model.reference.logprobs(PROMPTS[4]))


def check_tells(wrong: torch.Tensor, right: torch.Tensor) -> None:
    """wrong, right: log-probabilities [T, V]."""
    difference = (wrong - right)[-10:]
    assert difference.abs().max() > 1.5 * TOLERANCE
    assert difference.square().mean().sqrt() > 1.5 * MEAN_TOLERANCE


def test_most_tokens_are_no_ties(model: Model) -> None:
    best, second = model.reference.logits(PROMPTS[4]).topk(2).values.unbind(-1)
    assert (best - second > TOLERANCE).float().mean() > 0.6

"""Tokens sampled by the kernels against the torch path on the CPU.

Where a draw or a border falls within float rounding, the two may differ; no case here comes as near to one as that.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minisgl.core import Req, SamplingParams
from minisgl.core.seeds import uniform
from minisgl.engine.sampler import Sampler
from minisgl.kernel.triton.sampling import sample_tokens

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
DTYPES = [torch.float32, torch.bfloat16]
HOT = {"temperature": 1.0}
KINDS = [
    {},
    HOT,
    {"temperature": 0.6},
    {"temperature": 1e-10},
    {**HOT, "top_k": 1},
    {**HOT, "top_k": 20},
    {**HOT, "top_k": 2**31},
    {**HOT, "top_p": 0.0},
    {**HOT, "top_p": 0.3},
    {**HOT, "top_p": 0.95},
    {**HOT, "min_p": 0.05},
    {**HOT, "min_p": 1.0},
    {"temperature": 0.6, "top_k": 20, "top_p": 0.95},
    {"temperature": 2.0, "top_p": 0.97, "min_p": 0.001},
    {"temperature": 5.0, "top_k": 290, "top_p": 0.9, "min_p": 0.1},
]


def make_req(params: SamplingParams, seed: int) -> Req:
    return Req(
        uid=0, table_idx=0, cached_len=0, device_len=2, max_device_len=9, prompt_len=2,
        input_ids=np.array([1, 2], np.int32), sampling_params=params, seed=seed,
    )  # fmt: skip


def random_logits(rows: int, vocab_size: int, dtype: torch.dtype, spread: float = 3.0, seed: int = 0) -> torch.Tensor:
    return (spread * torch.randn(rows, vocab_size, generator=torch.Generator().manual_seed(seed))).to(DEVICE, dtype)


def settings_of(kinds: list[dict], numbers: list[float], vocab_size: int) -> torch.Tensor:
    rows = []
    for kind, number in zip(kinds, numbers, strict=True):
        top_k = kind.get("top_k", 0)
        row = [kind.get("temperature", 0.0), number, top_k if top_k < vocab_size else 0]
        rows.append([*row, kind.get("top_p", 1.0), kind.get("min_p", 0.0)])
    return torch.tensor(rows, dtype=torch.float64, device=DEVICE)


def by_kernel(logits: torch.Tensor, kinds: list[dict]) -> list[int]:
    numbers = [uniform(seed, 0) for seed in range(len(kinds))]
    return sample_tokens(logits, settings_of(kinds, numbers, logits.shape[1])).tolist()


def by_torch(logits: torch.Tensor, kinds: list[dict]) -> list[int]:
    reqs = [make_req(SamplingParams(**kind), seed) for seed, kind in enumerate(kinds)]
    return Sampler(logits.shape[1], "cpu").sample(logits.cpu().float(), reqs).tokens.tolist()


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [*((kind, torch.bfloat16) for kind in KINDS), *((kind, torch.float32) for kind in (*KINDS[:5], KINDS[-3]))],
    ids=str,
)
def test_the_tokens_are_those_of_torch(kind: dict, dtype: torch.dtype):
    logits = random_logits(1, 300, dtype)
    assert by_kernel(logits, [kind]) == by_torch(logits, [kind])


def test_a_vocabulary_of_one_has_one_token():
    assert by_kernel(torch.zeros(3, 1, device=DEVICE), [{}, HOT, KINDS[-1]]) == [0, 0, 0]


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(KINDS), st.sampled_from([0.25, 1.0, 4.0]))
def test_ties_are_kept_and_left_out_as_in_torch(seed: int, kind: dict, step: float):
    """Logits on a coarse grid: most tokens have equals at the border, of which the lowest ids stay."""
    logits = ((random_logits(1, 300, torch.float32, seed=seed) / step).round() * step).bfloat16()
    assert by_kernel(logits, [kind]) == by_torch(logits, [kind])


def test_of_equal_tokens_at_the_border_of_top_p_the_lowest_ids_stay():
    logits = torch.full((1, 700), -5.0, device=DEVICE)
    logits[0, [3, 299, 300, 650]] = 2.0
    rows = settings_of([{**HOT, "top_k": 4, "top_p": 0.7}] * 2, [0.6, 1 - 2.0**-53], 700)
    assert sample_tokens(logits.bfloat16().expand(2, 700), rows).tolist() == [299, 300]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_greedy_takes_the_lowest_id_of_equal_logits(dtype: torch.dtype):
    for ids in ([7, 9, 250], [0, 299], [255, 256, 257]):
        logits = torch.zeros(1, 300, dtype=dtype, device=DEVICE)
        logits[0, ids] = 4.0
        assert by_kernel(logits, [{}]) == [ids[0]]


def test_a_draw_is_the_inverse_cdf_in_order_of_id():
    logits = torch.full((1, 1000), -math.inf, device=DEVICE)
    logits[0, [3, 255, 256, 999]] = torch.tensor([1.0, 1.0, 2.0, 4.0], device=DEVICE).log()
    rows = settings_of([HOT] * 5, [0.0, 0.124, 0.126, 0.251, 0.501], 1000)
    assert sample_tokens(logits.expand(5, 1000), rows).tolist() == [3, 3, 255, 256, 999]


@settings(max_examples=6, deadline=None)
@given(
    st.integers(1, 600),
    st.sampled_from([0.0, 2.0**-53, 0.5, 1 - 2.0**-24, 1 - 2.0**-53]),
    st.sampled_from([HOT, {**HOT, "top_k": 5}, {**HOT, "top_p": 0.9}]),
    st.randoms(use_true_random=False),
)
def test_a_token_without_weight_is_never_drawn(size: int, number: float, kind: dict, random):
    logits = torch.tensor([[random.choice([-math.inf, -math.inf, -80.0, -1.0, 0.0]) for _ in range(size)]])
    logits[0, random.randrange(size)] = 0.0
    logits = logits.to(DEVICE, torch.bfloat16)
    assert logits[0, sample_tokens(logits, settings_of([kind], [number], size))] > -math.inf


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy, in the interpreter
@pytest.mark.parametrize("poison", [math.nan, -math.inf, math.inf])
@pytest.mark.parametrize("kind", [{}, HOT, {**HOT, "top_k": 5, "top_p": 0.5}], ids=str)
def test_a_row_without_usable_logits_fails_alone(kind: dict, poison: float):
    logits = random_logits(3, 300, torch.bfloat16)
    healthy = by_kernel(logits, [HOT, kind, {}])
    logits[1] = poison
    assert by_kernel(logits, [HOT, kind, {}]) == [healthy[0], -1, healthy[2]]


@pytest.mark.parametrize("kind", [{}, HOT, {**HOT, "min_p": 0.5}], ids=str)
def test_one_nan_fails_its_row(kind: dict):
    logits = random_logits(2, 600, torch.float32)
    logits[0, 17] = math.nan
    assert by_kernel(logits, [kind, {}]) == [-1, int(logits[1].argmax())]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_masked_tokens_leave_the_others():
    logits = torch.full((1, 600), -math.inf, device=DEVICE)
    logits[0, 400:404] = 1.0
    kinds = [{}, HOT, {**HOT, "top_k": 20}, {**HOT, "top_p": 0.95}]
    assert all(400 <= token < 404 for token in by_kernel(logits.to(torch.bfloat16).expand(4, 600), kinds))


def test_rows_may_lie_any_stride_apart_and_settings_may_go_on_beyond_them():
    logits = random_logits(3, 512, torch.bfloat16)
    kinds = [{}, HOT, {**HOT, "top_k": 9}]
    assert by_kernel(logits[:, :300], kinds) == by_torch(logits[:, :300], kinds)
    more = settings_of(kinds, [0.5] * 3, 512)
    assert torch.equal(sample_tokens(logits[:2], more.flatten()), sample_tokens(logits, more)[:2])


def test_a_sampler_with_kernels_gives_the_samples_of_one_without():
    """Edited rows are chosen again from edited logits; which rows those are does not matter to the others."""
    params = [
        SamplingParams(temperature=1.0, repetition_penalty=1.5, logprobs=2),
        SamplingParams(temperature=1.0, top_k=9),
        SamplingParams(logit_bias={7: 50.0}),
        SamplingParams(logprobs=0),
    ]
    reqs = [make_req(p, seed) for seed, p in enumerate(params)]
    logits = random_logits(4, 300, torch.bfloat16)
    without, with_kernels = Sampler(300, DEVICE), Sampler(300, DEVICE)
    without.has_kernels = False
    with_kernels.has_kernels = True
    with_kernels.warm_up(torch.bfloat16)
    expected, samples = (sampler.sample(logits, reqs) for sampler in (without, with_kernels))
    assert samples.tokens.tolist() == expected.tokens.tolist()
    assert samples.tokens[2] == 7
    assert samples.logprob_tops == expected.logprob_tops == {0: 2, 3: 0}
    assert all(torch.equal(*pair) for pair in zip(samples.logprobs, expected.logprobs, strict=True))


def test_tokens_come_where_they_are_wanted():
    logits, kept = random_logits(2, 300, torch.bfloat16), torch.full((4,), -5, dtype=torch.int32, device=DEVICE)
    tokens = sample_tokens(logits, settings_of([{}, {}], [0.0, 0.0], 300), out=kept[1:3])
    assert kept.tolist() == [-5, *logits.argmax(-1).tolist(), -5]
    assert tokens.data_ptr() == kept[1:].data_ptr()


def test_no_rows_give_no_tokens():
    assert (
        sample_tokens(
            torch.empty(0, 300, device=DEVICE), torch.empty(0, 5, dtype=torch.float64, device=DEVICE)
        ).tolist()
        == []
    )


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("vocab_size", [300, 151_669, 151_936])
@pytest.mark.parametrize("spread", [0.3, 3.0])
def test_a_gpu_gives_the_tokens_of_the_cpu(vocab_size: int, spread: float, dtype: torch.dtype):
    """Draws within rounding of a border do occur here: one of 75 rows may differ."""
    logits = random_logits(75, vocab_size, dtype, spread)
    kinds = KINDS * 5
    pairs = zip(by_kernel(logits, kinds), by_torch(logits, kinds), strict=True)
    assert sum(ours != theirs for ours, theirs in pairs) <= 1


@pytest.mark.gpu
def test_a_captured_graph_gives_the_same_tokens_whatever_the_rows_ask_for():
    logits = random_logits(30, 151_936, torch.bfloat16)
    rows = settings_of([{}] * 30, [0.0] * 30, 151_936)
    sample_tokens(logits, rows)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tokens = sample_tokens(logits, rows)
    new = settings_of(KINDS * 2, [uniform(seed, 1) for seed in range(30)], 151_936)
    rows.copy_(new)
    graph.replay()
    assert tokens.tolist() == sample_tokens(logits, new).tolist()


@pytest.mark.gpu
def test_no_row_on_a_gpu_depends_on_its_batch_mates():
    logits = random_logits(256, 151_936, torch.bfloat16, 1.0)
    kinds = (KINDS * 18)[:256]
    rows = settings_of(kinds, [uniform(seed, 2) for seed in range(256)], 151_936)
    together = sample_tokens(logits, rows)
    alone = torch.cat([sample_tokens(logits[row : row + 1], rows[row : row + 1].clone()) for row in range(256)])
    assert torch.equal(together, alone)


@pytest.mark.gpu
@pytest.mark.parametrize("filters", [{}, {"top_k": 8}], ids=str)
def test_draws_follow_the_weights(filters: dict):
    """Chi-square over 10,000 fixed seeds; 24.3 is the 99.9 % point for 7 degrees of freedom."""
    weights = torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
    numbers = [uniform(seed, 3) for seed in range(10_000)]
    rows = settings_of([{**HOT, **filters}] * 10_000, numbers, 9)
    counts = np.bincount(sample_tokens(weights.log().cuda().expand(10_000, 9), rows).cpu(), minlength=9)
    expected = 10_000 * (weights / weights.sum()).numpy()
    assert counts[0] == 0
    assert ((counts[1:] - expected[1:]) ** 2 / expected[1:]).sum() < 24.3

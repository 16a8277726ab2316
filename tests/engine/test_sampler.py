"""Tokens chosen by whole batches: greedy rows, batch mates, seeds, failures."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minisgl.core import Req, SamplingParams
from minisgl.core.seeds import choice_seed
from minisgl.engine.sampler import Sampler
from minisgl.engine.settings import SettingsTable

V = 300
MIXTURE = [
    SamplingParams(),
    SamplingParams(temperature=1.5, top_k=5, top_p=0.5, seed=3),
    SamplingParams(temperature=0.8),
    SamplingParams(temperature=1.0, top_p=0.9),
    SamplingParams(temperature=1.0, min_p=0.1),
    SamplingParams(temperature=0.7, top_k=40, frequency_penalty=1.0),
    SamplingParams(repetition_penalty=1.5),
    SamplingParams(temperature=1.0, logit_bias={5: 3.0}, logprobs=2),
]


@pytest.fixture(autouse=True)
def one_thread():
    """Small tensors are faster so, and much faster on a busy machine."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


def make_req(params=None, *, seed=0, prompt=(1, 2), output=(), ends=(), prev_row=-1):
    """A decode or prefill of everything; prev_row >= 0 says that one more token is on the device."""
    ids = np.array([*prompt, *output], dtype=np.int32)
    device_len = len(ids) + (prev_row >= 0)
    return Req(
        uid=0, table_idx=0, cached_len=0, device_len=device_len, max_device_len=device_len + 10_000,
        prompt_len=len(prompt), input_ids=ids, sampling_params=params or SamplingParams(), seed=seed,
        prev_row=prev_row, end_token_ids=frozenset(ends),
    )  # fmt: skip


def random_logits(rows, vocab_size=V, seed=0):
    return 3 * torch.randn(rows, vocab_size, generator=torch.Generator().manual_seed(seed))


def sample(logits, reqs, prev=None):
    return Sampler(logits.shape[1], "cpu").sample(logits, reqs, prev).tokens.tolist()


def test_greedy_rows_take_the_best_raw_logit():
    logits = random_logits(5)
    assert sample(logits, [make_req()] * 5) == logits.argmax(-1).tolist()


def test_greedy_takes_the_lowest_id_of_equal_logits():
    for ids in ([7, 9, 250], [0, 299], [255, 256, 257]):
        logits = torch.zeros(1, V)
        logits[0, ids] = 4.0
        assert sample(logits, [make_req()]) == [ids[0]]
        assert sample(torch.cat([logits, random_logits(1)]), [make_req(), make_req(MIXTURE[2])])[0] == ids[0]


def test_a_greedy_row_is_the_same_alone_and_at_any_place_beside_sampled_ones():
    logits, hot = random_logits(8), SamplingParams(temperature=1.5, top_k=5, top_p=0.3)
    for place in range(8):
        reqs = [make_req(hot, seed=row) for row in range(8)]
        reqs[place] = make_req()
        assert sample(logits, reqs)[place] == int(logits[place].argmax())


def test_filters_and_seed_have_no_effect_at_temperature_zero():
    logits = random_logits(1)
    params = SamplingParams(top_k=2, top_p=0.1, min_p=0.9, seed=5)
    assert sample(logits, [make_req(params, seed=5)]) == [int(logits.argmax())]


@settings(max_examples=40, deadline=None)
@given(st.permutations(range(len(MIXTURE))), st.integers(1, len(MIXTURE)), st.integers(0, 5))
def test_no_row_depends_on_its_batch_mates_or_on_their_order(order, num_rows, position):
    logits = random_logits(len(MIXTURE), seed=position)
    reqs = [make_req(params, seed=row, output=[3] * position) for row, params in enumerate(MIXTURE)]
    alone = [sample(logits[row : row + 1], [req])[0] for row, req in enumerate(reqs)]
    chosen = order[:num_rows]
    assert sample(logits[chosen], [reqs[row] for row in chosen]) == [alone[row] for row in chosen]


def test_many_rows_of_one_kind_are_the_same_as_each_alone():
    logits = random_logits(40)
    reqs = [make_req(SamplingParams(temperature=1.0, top_p=0.95), seed=row) for row in range(40)]
    assert sample(logits, reqs) == [sample(logits[row : row + 1], [req])[0] for row, req in enumerate(reqs)]


@pytest.mark.parametrize("params", MIXTURE[1:6], ids=str)
def test_a_seed_repeats_at_its_position_and_differs_at_others(params):
    logits = random_logits(1) / 3
    draws = [sample(logits, [make_req(params, seed=7, output=[4] * i)])[0] for i in range(20)]
    assert draws == [sample(logits, [make_req(params, seed=7, output=[4] * i)])[0] for i in range(20)]
    assert len(set(draws)) > 1


def test_the_position_counts_a_last_token_that_is_still_on_the_device():
    params, logits = SamplingParams(temperature=1.0), random_logits(1)
    for i in range(10):
        known = make_req(params, seed=7, output=[4] * (i + 1))
        pending = make_req(params, seed=7, output=[4] * i, prev_row=0)
        assert sample(logits, [known]) == sample(logits, [pending], torch.tensor([4], dtype=torch.int32))


def test_other_seeds_give_other_texts_and_zero_is_a_seed():
    logits = torch.zeros(1, V)
    params = SamplingParams(temperature=1.0)
    texts = {
        tuple(sample(logits, [make_req(params, seed=seed, output=[0] * i)])[0] for i in range(6))
        for seed in (0, 1, 7, -1, 2**63 - 1, -(2**63))
    }
    assert len(texts) == 6


def test_the_choices_of_one_request_differ_and_repeat():
    logits, params = torch.zeros(4, V), SamplingParams(temperature=1.2)

    def texts(seed):
        reqs = [make_req(params, seed=choice_seed(seed, i)) for i in range(4)]
        return sample(logits, reqs)

    assert len(set(texts(7))) > 1
    assert texts(7) == texts(7)
    assert texts(7)[0] == sample(logits[:1], [make_req(params, seed=7)])[0]


def test_the_global_random_state_is_neither_read_nor_changed():
    logits, reqs = random_logits(len(MIXTURE)), [make_req(params, seed=1) for params in MIXTURE]
    torch.manual_seed(0)
    first, state = sample(logits, reqs), torch.get_rng_state()
    torch.manual_seed(1)
    assert sample(logits, reqs) == first
    torch.manual_seed(0)
    sample(logits, reqs)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_logits_are_not_changed():
    logits = random_logits(len(MIXTURE))
    before = logits.clone()
    sample(logits, [make_req(params) for params in MIXTURE])
    assert torch.equal(logits, before)


@pytest.mark.parametrize("top_k", [0, -1, 1, V - 1, V, V + 1, 2**31])
def test_top_k_of_any_size_serves_its_row_and_its_neighbours(top_k):
    logits = random_logits(2)
    tokens = sample(logits, [make_req(), make_req(SamplingParams(temperature=1.0, top_k=top_k), seed=3)])
    off = sample(logits, [make_req(), make_req(SamplingParams(temperature=1.0), seed=3)])
    assert tokens[0] == off[0] == int(logits[0].argmax())
    assert tokens[1] == (int(logits[1].argmax()) if top_k == 1 else off[1])


@pytest.mark.parametrize("temperature", [1e-300, 1e-10, 1e-4])
def test_the_coldest_temperatures_take_the_best_token(temperature):
    logits = random_logits(1)
    params = [SamplingParams(temperature=temperature), SamplingParams(temperature=temperature, top_p=0.9)]
    assert sample(logits.expand(2, V), [make_req(p) for p in params]) == [int(logits.argmax())] * 2


def test_the_hottest_temperature_still_gives_a_token():
    assert 0 <= sample(random_logits(1), [make_req(SamplingParams(temperature=1e300))])[0] < V


@pytest.mark.parametrize("poison", [math.nan, -math.inf, math.inf])
@pytest.mark.parametrize("params", MIXTURE, ids=str)
def test_a_row_without_usable_logits_fails_alone(poison, params):
    logits = random_logits(3)
    reqs = [make_req(MIXTURE[3], seed=1), make_req(params, seed=2), make_req()]
    healthy = sample(logits, reqs)
    logits[1] = poison
    assert sample(logits, reqs) == [healthy[0], -1, healthy[2]]


@pytest.mark.parametrize("params", MIXTURE, ids=str)
def test_one_nan_fails_its_row(params):
    logits = random_logits(2)
    logits[0, 17] = math.nan
    assert sample(logits, [make_req(params), make_req()]) == [-1, int(logits[1].argmax())]


def test_rounded_logits_give_the_tokens_of_the_same_numbers_in_float32():
    logits = random_logits(len(MIXTURE)).bfloat16()
    reqs = [make_req(params, seed=row, output=[3]) for row, params in enumerate(MIXTURE)]
    rounded, exact = (Sampler(V, "cpu").sample(x, reqs) for x in (logits, logits.float()))
    assert torch.equal(rounded.tokens, exact.tokens)
    assert torch.equal(rounded.logprobs.top_logprobs, exact.logprobs.top_logprobs)


def test_rows_with_edits_or_logprobs_need_more_than_a_kernel():
    reqs = [make_req(params) for params in [*MIXTURE, SamplingParams(min_tokens=1)]]
    assert Sampler(V, "cpu").needs_more(reqs) == [5, 6, 7]
    ends = [make_req(SamplingParams(min_tokens=1), output=[3] * n, ends=[2]) for n in range(2)]
    assert Sampler(V, "cpu").needs_more(ends) == [0]


def test_rows_that_are_sampled_once_more_leave_the_settings_of_their_batch_alone(monkeypatch):
    """Else each step of a batch in which one row wants more would make those of all others anew."""
    reqs = [make_req(params) for params in MIXTURE]
    sampler, made = Sampler(V, "cpu"), []
    sampler.has_kernels = True
    monkeypatch.setattr(sampler, "choose", lambda logits, settings: torch.zeros(len(logits), dtype=torch.int32))
    make = SettingsTable._row
    monkeypatch.setattr(SettingsTable, "_row", lambda table, params: made.append(params) or make(table, params))
    for _ in range(3):
        sampler.settings(reqs)
        row = sampler.needs_more(reqs)[0]
        sampler.sample(random_logits(1), [reqs[row]])
    assert len(made) == len(reqs) + 1


def test_an_empty_batch_gives_no_tokens():
    assert sample(torch.empty(0, V), []) == []


def test_tokens_follow_the_filtered_distribution():
    """Chi-square over 2,000 fixed seeds; 31.3 is the 99.9 % point for 11 degrees of freedom."""
    logits = torch.linspace(-1, 2, 20)
    params = SamplingParams(temperature=1.3, top_k=15, top_p=0.9)
    tokens = sample(logits.repeat(2_000, 1), [make_req(params, seed=seed) for seed in range(2_000)])
    best_first = torch.softmax(logits / 1.3, 0).numpy()[::-1][:15]
    shares = best_first / best_first.sum()
    num_kept = int((shares.cumsum() - shares < 0.9).sum())
    expected = 2_000 * shares[:num_kept] / shares[:num_kept].sum()
    counts = np.bincount(tokens, minlength=20)[::-1]
    assert num_kept == 12
    assert counts[num_kept:].sum() == 0
    assert ((counts[:num_kept] - expected) ** 2 / expected).sum() < 31.3


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_the_host_never_waits_for_the_gpu():
    reqs = [make_req(MIXTURE[row % len(MIXTURE)], seed=row, output=[5]) for row in range(16)]
    logits, sampler = random_logits(16).cuda(), Sampler(V, "cuda")
    sampler.sample(logits, reqs)
    torch.cuda.set_sync_debug_mode("error")
    try:
        sampler.sample(logits, reqs)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
def test_a_gpu_gives_the_tokens_of_the_cpu():
    for vocab_size in (300, 49_152, 151_936):
        logits = random_logits(64, vocab_size)
        reqs = [make_req(MIXTURE[row % len(MIXTURE)], seed=row, output=[5]) for row in range(64)]
        on_gpu = Sampler(vocab_size, "cuda").sample(logits.cuda(), reqs)
        assert on_gpu.tokens.tolist() == sample(logits, reqs)
        ties = torch.zeros(3, vocab_size, device="cuda")
        assert Sampler(vocab_size, "cuda").sample(ties, [make_req()] * 3).tokens.tolist() == [0, 0, 0]

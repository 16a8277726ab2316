"""Filters and penalties against transformers' own processors, and against expected values written out."""

import math

import numpy as np
import pytest
import torch
from transformers import (
    LogitsProcessorList,
    MinNewTokensLengthLogitsProcessor,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from minisgl.core import Req, SamplingParams
from minisgl.engine.filters import drop_mask, top_values
from minisgl.engine.penalties import edit_logits, is_edited


def make_req(params, prompt=(1, 2), output=(), ends=(), prev_row=-1):
    ids = np.array([*prompt, *output], dtype=np.int32)
    length = len(ids) + (prev_row >= 0)
    return Req(
        uid=0, table_idx=0, cached_len=0, device_len=length, max_device_len=length + 9, prompt_len=len(prompt),
        input_ids=ids, sampling_params=params, prev_row=prev_row, end_token_ids=frozenset(ends),
    )  # fmt: skip


def random_logits(rows, vocab_size, spread=3.0, seed=0):
    return spread * torch.randn(rows, vocab_size, generator=torch.Generator().manual_seed(seed))


def filtered(logits, params):
    """[N, V] probabilities that the sampler draws from."""
    scores = logits / torch.tensor([p.temperature for p in params])[:, None]
    best = scores.amax(-1, keepdim=True)
    weights = (scores - best).exp()
    weights[drop_mask(scores, best, weights, params)] = 0
    return weights / weights.sum(-1, keepdim=True)


def filtered_by_transformers(logits, params):
    steps = LogitsProcessorList([TemperatureLogitsWarper(params.temperature)])
    if params.top_k > 0:
        steps.append(TopKLogitsWarper(params.top_k))
    if params.top_p < 1:
        steps.append(TopPLogitsWarper(params.top_p))
    if params.min_p > 0:
        steps.append(MinPLogitsWarper(params.min_p))
    return torch.softmax(steps(torch.zeros(len(logits), 1, dtype=torch.long), logits), -1)


FILTERS = [
    {"top_k": 1},
    {"top_k": 50},
    {"top_k": 1500},
    {"top_k": 2**31},
    {"top_p": 0.0},
    {"top_p": 0.3},
    {"top_p": 0.95},
    {"top_p": 0.999},
    {"min_p": 0.05},
    {"min_p": 1.0},
    {"top_k": 40, "top_p": 0.8},
    {"top_k": 1, "top_p": 0.0, "min_p": 1.0},
    {"top_k": 1500, "top_p": 0.97, "min_p": 0.001},
    {"top_p": 0.97, "min_p": 0.001, "temperature": 2.0},
    {"top_k": 1400, "top_p": 0.9, "temperature": 5.0},
]


@pytest.mark.parametrize("fields", FILTERS, ids=str)
@pytest.mark.parametrize("spread", [0.1, 1.0, 3.0])
def test_the_distribution_is_that_of_transformers(fields, spread):
    params = SamplingParams(**{"temperature": 0.8, **fields})
    logits = random_logits(4, 2000, spread)
    ours, theirs = filtered(logits, [params] * 4), filtered_by_transformers(logits, params)
    assert torch.equal(ours > 0, theirs > 0)
    assert torch.allclose(ours, theirs, rtol=0, atol=1e-6)


def test_every_row_is_filtered_by_its_own_request():
    params = [SamplingParams(**{"temperature": 0.8, **fields}) for fields in [*FILTERS, {}]]
    logits = random_logits(len(params), 2000)
    together = filtered(logits, params)
    for row, p in enumerate(params):
        theirs = filtered_by_transformers(logits[row : row + 1], p)
        assert torch.allclose(together[row : row + 1], theirs, rtol=0, atol=1e-6)


@pytest.mark.parametrize("fields", FILTERS, ids=str)
@pytest.mark.parametrize("step", [0.25, 1.0, 4.0])
def test_as_many_ties_are_kept_as_in_transformers_and_the_lowest_ids(fields, step):
    """Logits on a coarse grid, as bfloat16 gives them: most tokens have equals. Which ones transformers keeps is left
    to an unstable sort, so only their number is compared."""
    params = SamplingParams(**{"temperature": 1.0, **fields})
    logits = (random_logits(4, 1600) / step).round() * step
    ours, theirs = filtered(logits, [params] * 4), filtered_by_transformers(logits, params)
    assert torch.allclose(ours.sort(-1).values, theirs.sort(-1).values, rtol=0, atol=1e-6)
    for row, kept in zip(logits, ours > 0, strict=True):
        at_border = kept[row == row[kept].min()]
        assert not at_border[int(at_border.sum()) :].any()


def test_top_p_of_zero_keeps_the_token_that_greedy_takes():
    kept = filtered(torch.tensor([[1.0, 5.0, 5.0, 2.0]]), [SamplingParams(temperature=1, top_p=0)])
    assert kept.tolist() == [[0, 1, 0, 0]]


def test_top_k_keeps_all_that_equal_the_last():
    kept = filtered(torch.tensor([[1.0, 5.0, 4.0, 4.0]]), [SamplingParams(temperature=1, top_k=2)])
    assert (kept > 0).tolist() == [[False, True, True, True]]


def test_top_p_counts_within_what_top_k_left():
    logits = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log()
    kept = filtered(logits, [SamplingParams(temperature=1, top_k=2, top_p=0.57)])
    assert (kept > 0).tolist() == [[True, False, False, False]]  # 0.4 of the remaining 0.7 is 0.571


@pytest.mark.parametrize("num", [1, 2, 299, 300])
def test_top_values_are_the_head_of_a_sort(num):
    scores = random_logits(3, 300)
    assert torch.equal(top_values(scores, num), scores.sort(-1, descending=True).values[:, :num])


def edited(logits, reqs, last_tokens=None):
    logits = logits.clone()
    edit_logits(logits, reqs, last_tokens)
    return logits


@pytest.mark.parametrize("penalty", [0.5, 1.3, 10.0])
def test_the_repetition_penalty_is_that_of_transformers(penalty):
    logits, prompt, output = random_logits(1, 100), [3, 4, 4, 99], [5, 5, 3]
    req = make_req(SamplingParams(repetition_penalty=penalty), prompt, output)
    theirs = RepetitionPenaltyLogitsProcessor(penalty)(torch.tensor([prompt + output]), logits.clone())
    assert torch.allclose(edited(logits, [req]), theirs, rtol=1e-6)


@pytest.mark.parametrize("num_generated", [0, 2, 3])
def test_end_tokens_are_masked_for_min_tokens_as_in_transformers(num_generated):
    logits, prompt = random_logits(1, 100), [3, 4]
    req = make_req(SamplingParams(min_tokens=3), prompt, [7] * num_generated, ends={2, 50})
    mask = MinNewTokensLengthLogitsProcessor(len(prompt), 3, [2, 50], device="cpu")
    theirs = mask(torch.tensor([req.input_ids.tolist()]), logits.clone())
    assert torch.equal(edited(logits, [req]), theirs)
    assert is_edited(req) == (num_generated < 3)


def test_presence_counts_once_and_frequency_every_time_and_only_the_output():
    params = SamplingParams(presence_penalty=0.5, frequency_penalty=0.25)
    req = make_req(params, prompt=[1, 1, 2], output=[2, 3, 3, 3])
    assert edited(torch.zeros(1, 5), [req]).tolist() == [[0, 0, -0.75, -1.25, 0]]


def test_a_bias_is_added_and_may_rule_out_the_rest():
    req = make_req(SamplingParams(logit_bias={0: 1.5, 3: -100}))
    assert edited(torch.ones(1, 4), [req]).tolist() == [[2.5, 1, 1, -99]]


def test_repetition_comes_before_presence_bias_and_the_end_token_mask():
    params = SamplingParams(
        repetition_penalty=2.0, presence_penalty=1.0, logit_bias={1: 4.0, 2: 100.0}, min_tokens=5, max_tokens=9
    )
    req = make_req(params, prompt=[0], output=[1], ends={2})
    assert edited(torch.full((1, 4), 8.0), [req]).tolist() == [[4, 8 / 2 - 1 + 4, -math.inf, 8]]


def test_a_last_token_on_the_device_counts_like_a_known_one():
    params = SamplingParams(repetition_penalty=1.5, presence_penalty=0.5, frequency_penalty=0.25)
    for output in ([], [7], [6, 7, 7]):
        logits = random_logits(2, 20)
        known = make_req(params, [1, 2], [*output, 7])
        pending = make_req(params, [1, 2], output, prev_row=4)
        both = edited(logits, [known, pending], torch.tensor([13, 7], dtype=torch.int32))
        alone = edited(logits[1:], [known])
        assert torch.allclose(both[0], edited(logits[:1], [known])[0], rtol=0, atol=1e-6)
        assert torch.allclose(both[1], alone[0], rtol=0, atol=1e-6)


def test_each_row_is_edited_by_its_own_request_only():
    logits = random_logits(3, 20)
    reqs = [
        make_req(SamplingParams()),
        make_req(SamplingParams(repetition_penalty=3.0), [4, 5]),
        make_req(SamplingParams(logit_bias={6: 2.0})),
    ]
    rows, ids = (edited(logits, reqs) != logits).nonzero(as_tuple=True)
    assert list(zip(rows.tolist(), ids.tolist(), strict=True)) == [(1, 4), (1, 5), (2, 6)]
    assert [is_edited(req) for req in reqs] == [False, True, True]


def test_ids_that_the_logits_do_not_have_are_passed_over():
    params = SamplingParams(repetition_penalty=2.0, presence_penalty=1.0, logit_bias={10: 5, 99: 5}, min_tokens=9)
    req = make_req(params, prompt=[10, 99], output=[99], ends={10, 99})
    assert edited(torch.ones(1, 10), [req]).tolist() == [[1.0] * 10]


def test_a_failed_last_token_does_no_harm():
    req = make_req(SamplingParams(presence_penalty=1.0), prev_row=0)
    assert edited(torch.ones(1, 3), [req], torch.tensor([-1])).tolist() == [[0, 1, 1]]


@pytest.mark.parametrize("top_k", [0, 20, 3000])
def test_scores_far_below_the_best_count_where_they_are_many(top_k):
    """Beside one best token 40,000 that lie 9 below it have four times its probability."""
    logits = torch.full((3, 49152), -30.0)
    logits[0, 7], logits[0, 100:40100] = 0.0, torch.linspace(-9, -9.5, 40000)  # no two are equal
    logits[1, 5], logits[1, 6] = 1.0, 0.5
    logits[2] = random_logits(1, 49152, spread=2.0)
    params = SamplingParams(temperature=1.0, top_p=0.9, top_k=top_k)
    expected = filtered_by_transformers(logits.double(), params).float()  # a float32 sum of 40,000 drifts
    torch.testing.assert_close(filtered(logits, [params] * 3), expected, atol=1e-6, rtol=1e-3)
    for row in range(3):  # whoever is beside it
        alone = filtered(logits[row : row + 1], [params])
        torch.testing.assert_close(alone, expected[row : row + 1], atol=1e-6, rtol=1e-3)

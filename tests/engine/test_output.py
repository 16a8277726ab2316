"""Logprobs, and the way of a batch's output to the host."""

import json

import numpy as np
import pytest
import torch

from minisgl.core import Req, SamplingParams, TokenLogprobs
from minisgl.engine.logprobs import LOGPROB_FLOOR, prompt_logprobs
from minisgl.engine.output import NO_TOKEN_ERROR, DeviceOutput, FailedOutput
from minisgl.engine.sampler import SampleOutput, Sampler
from minisgl.kernel import BROKEN

V = 50


def make_req(**fields):
    ids = np.array([1, 2], dtype=np.int32)
    return Req(
        uid=0, table_idx=0, cached_len=0, device_len=2, max_device_len=9, prompt_len=2, input_ids=ids,
        sampling_params=SamplingParams(**fields),
    )  # fmt: skip


def random_logits(rows):
    return 3 * torch.randn(rows, V, generator=torch.Generator().manual_seed(0))


def output_of(samples, rows):
    """Of a batch as long as its last row, where `rows` sampled."""
    tokens = torch.full((max(rows) + 1,), -1, dtype=torch.int32, device=samples.tokens.device)
    tokens[list(rows)] = samples.tokens
    tops = {rows[i]: top for i, top in samples.logprob_tops.items()}
    return DeviceOutput(tokens, rows, samples.logprobs, tops)


def result_of(logits, reqs):
    return output_of(Sampler(V, "cpu").sample(logits, reqs), range(len(reqs))).result()


def numbers_of(entry):
    return [entry.logprob, *(logprob for _, logprob in entry.top)]


def test_rows_that_sampled_have_their_tokens():
    result = output_of(SampleOutput(torch.tensor([7, 8], dtype=torch.int32)), [1, 3]).result()
    assert result.next_tokens.tolist() == [-1, 7, -1, 8]
    assert result.next_tokens.dtype == np.int32
    assert result.errors == {}
    assert result.logprobs == result.prompt_logprobs == ()


def test_the_result_is_made_once_from_the_tokens_as_they_were():
    tokens = torch.tensor([7], dtype=torch.int32)
    output = DeviceOutput(tokens, [0])
    tokens.fill_(9)
    assert output.result().next_tokens.tolist() == [7]
    assert output.result() is output.result()


def test_a_batch_that_samples_nothing_gives_no_tokens_and_no_errors():
    result = DeviceOutput(torch.tensor([-1, -1], dtype=torch.int32), [], prompt_logprobs=((), ())).result()
    assert result.next_tokens.tolist() == [-1, -1]
    assert result.errors == {}
    assert result.prompt_logprobs == ((), ())


def test_a_broken_row_fails_even_if_it_sampled_nothing():
    result = DeviceOutput(torch.tensor([BROKEN, 5], dtype=torch.int32), [1]).result()
    assert result.next_tokens.tolist() == [-1, 5]
    assert result.errors == {0: NO_TOKEN_ERROR}


def test_a_row_that_failed_has_an_error_and_no_logprobs_and_the_others_have_theirs():
    logits = random_logits(3)
    logits[1] = torch.nan
    result = result_of(logits, [make_req(logprobs=2)] * 3)
    assert result.errors == {1: NO_TOKEN_ERROR}
    assert result.next_tokens.tolist() == [int(logits[0].argmax()), -1, int(logits[2].argmax())]
    assert [entry is None for entry in result.logprobs] == [False, True, False]


def test_a_failed_batch_fails_every_request():
    result = FailedOutput(2, "out of memory").result()
    assert result.next_tokens.tolist() == [-1, -1]
    assert result.errors == {0: "out of memory", 1: "out of memory"}


def test_each_row_gets_as_many_logprobs_as_it_asked_for_in_its_own_row_of_the_batch():
    logits = random_logits(4)
    reqs = [make_req(), make_req(logprobs=0), make_req(logprobs=5), make_req(logprobs=2)]
    samples = Sampler(V, "cpu").sample(logits, reqs)
    result = output_of(samples, [0, 2, 3, 5]).result()
    assert [entry if entry is None else len(entry.top) for entry in result.logprobs] == [None, None, 0, 5, None, 2]
    expected = torch.log_softmax(logits, -1)
    for row, sample in ((2, 1), (3, 2), (5, 3)):
        entry = result.logprobs[row]
        assert entry.token_id == result.next_tokens[row]
        assert entry.logprob == pytest.approx(float(expected[sample].max()))
        best = expected[sample].topk(len(entry.top))
        assert [token_id for token_id, _ in entry.top] == best.indices.tolist()
        assert [logprob for _, logprob in entry.top] == pytest.approx(best.values.tolist())


def test_logprobs_are_of_the_model_whatever_was_done_before_the_draw():
    logits = random_logits(1)
    plain = result_of(logits, [make_req(logprobs=20)]).logprobs[0]
    strange = make_req(logprobs=20, temperature=0.3, top_k=1, logit_bias={plain.token_id: 5.0})
    assert result_of(logits, [strange]).logprobs[0] == plain


def test_every_logprob_is_finite_even_when_the_rest_is_impossible():
    logits = torch.full((2, V), -torch.inf)
    logits[:, 3] = 1.0
    logits[1, 4] = -1e30
    reqs = [make_req(logprobs=5), make_req(logprobs=5, temperature=1.0, top_k=1, logit_bias={4: -100})]
    for entry in result_of(logits, reqs).logprobs:
        assert entry.token_id == 3
        assert numbers_of(entry) == [0.0, 0.0, *[LOGPROB_FLOOR] * 4]
        json.dumps(numbers_of(entry), allow_nan=False)


@pytest.mark.parametrize("num_tokens", [0, 1, 64, 150])
def test_prompt_logprobs_are_those_of_the_tokens_that_follow(num_tokens):
    logits, targets = random_logits(num_tokens), torch.arange(num_tokens, dtype=torch.int32) % V
    entries = prompt_logprobs(logits, targets, 3)
    expected = torch.log_softmax(logits, -1)
    assert [entry.token_id for entry in entries] == targets.tolist()
    for row, entry in enumerate(entries):
        assert entry.logprob == pytest.approx(float(expected[row, targets[row]]))
        assert [logprob for _, logprob in entry.top] == pytest.approx(expected[row].topk(3).values.tolist())


def test_prompt_logprobs_of_impossible_and_broken_rows_are_numbers():
    logits = torch.full((2, V), -torch.inf)
    logits[0, 3] = 1.0
    entries = prompt_logprobs(logits, torch.tensor([5, 5]), 0)
    assert entries == (TokenLogprobs(5, LOGPROB_FLOOR), TokenLogprobs(5, LOGPROB_FLOOR))


@pytest.mark.gpu
def test_a_result_does_not_wait_for_later_work():
    logits = random_logits(4).cuda()
    best = logits.argmax(-1).tolist()
    samples = Sampler(V, "cuda").sample(logits, [make_req(logprobs=3)] * 4)
    output = output_of(samples, range(4))
    later = torch.cuda.Event()
    torch.cuda._sleep(2_000_000_000)
    later.record()
    assert output.result().next_tokens.tolist() == best
    assert not later.query()

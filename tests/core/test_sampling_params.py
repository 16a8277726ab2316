"""What SamplingParams accepts, refuses and normalises."""

import copy
import dataclasses
import inspect
import pickle

import msgspec
import numpy as np
import pytest

from minisgl.core import FieldError, SamplingParams

NAN, INF = float("nan"), float("inf")

REFUSED = {
    "temperature": [-1, -1e-9, NAN, INF, -INF, 10**400, "hot", "1", None, True, [1]],
    "top_k": [-2, 1.5, 5.0, "5", True, None, 2**63],
    "top_p": [-0.1, 1.1, NAN, INF, "0.5", None, True],
    "min_p": [2, -0.1, 1.0001, NAN, None],
    "seed": [2**63, -(2**63) - 1, 1.5, "7", True],
    "max_tokens": [-1, 1.5, "3", None, True, 10**30],
    "min_tokens": [-1, 1.5, None],
    "stop": [None, 5, [""], "", ["a", ""], ["a", 3], ["a"] * 65, "x" * 1025, {"a": 1}, "a\ud800"],
    "stop_token_ids": [[-1], [1.5], ["3"], [True], 3, "3", None],
    "ignore_eos": ["yes", 1, None],
    "skip_special_tokens": ["yes", 0, None],
    "repetition_penalty": [0, -1, NAN, INF, None],
    "presence_penalty": [2.1, -2.1, NAN, None],
    "frequency_penalty": [2.1, -2.1, NAN, "0"],
    "logit_bias": [[], {"abc": 1}, {"1": 1}, {1: 101}, {1: -100.5}, {1: None}, {1: NAN}, {-1: 1}, {1.5: 1}],
    "logprobs": [21, -1, 1.5, True, "5"],
    "prompt_logprobs": [21, -1, 1.5, True],
    "n": [0, -1, 129, 10**9, True, 1.5, None],
}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in REFUSED.items() for value in values])
def test_a_bad_value_is_refused_by_the_name_of_its_field(field, value):
    with pytest.raises(FieldError, match=field) as caught:
        SamplingParams(**{field: value})
    assert caught.value.field == field


def test_a_refusal_names_value_and_range():
    with pytest.raises(ValueError, match=r"^top_p=1\.1 is not in \[0, 1\]$"):
        SamplingParams(top_p=1.1)
    with pytest.raises(ValueError, match=r"^n=129 is not in \[1, 128\]$"):
        SamplingParams(n=129)
    with pytest.raises(ValueError, match=r"^temperature=-1 is not a finite number of at least 0$"):
        SamplingParams(temperature=-1)


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 0},
        {"temperature": 1000.0},
        {"top_k": -1},
        {"top_k": 0},
        {"top_k": 2**31},
        {"top_p": 0},
        {"top_p": 1},
        {"min_p": 1},
        {"seed": 0},
        {"seed": -1},
        {"seed": 2**63 - 1},
        {"seed": -(2**63)},
        {"max_tokens": 2**40},
        {"max_tokens": 0},
        {"max_tokens": 0, "prompt_logprobs": 0},
        {"min_tokens": 7, "max_tokens": 7},
        {"presence_penalty": -2, "frequency_penalty": 2},
        {"repetition_penalty": 1e-3},
        {"logit_bias": {0: -100, 5: 100.0}},
        {"logit_bias": {}},
        {"logprobs": 0, "prompt_logprobs": 20},
        {"n": 128},
    ],
    ids=str,
)
def test_the_ends_of_each_range_are_allowed(fields):
    params = SamplingParams(**fields)
    assert {name: getattr(params, name) for name in fields} == fields


def test_min_tokens_is_at_most_max_tokens():
    with pytest.raises(ValueError, match="min_tokens=8 is more than max_tokens=7"):
        SamplingParams(min_tokens=8, max_tokens=7)


def test_an_unknown_keyword_is_a_type_error():
    with pytest.raises(TypeError, match="max_new_tokens"):
        SamplingParams(max_new_tokens=3)


def test_stop_is_a_tuple_whether_one_string_or_many_were_given():
    assert SamplingParams().stop_strings == ()
    assert SamplingParams(stop="ab").stop_strings == ("ab",)
    assert SamplingParams(stop=["ab", "c"]).stop == ("ab", "c")


def test_numpy_numbers_become_plain_ones():
    params = SamplingParams(
        temperature=np.float32(0.5), top_k=np.int64(3), seed=np.int32(4), stop_token_ids=[np.int32(5)]
    )
    assert [type(value) for value in (params.temperature, params.top_k, params.seed, params.stop_token_ids[0])] == [
        float, int, int, int
    ]  # fmt: skip


def test_what_the_caller_passed_may_change_afterwards():
    stop, ids, bias = ["a"], [1], {2: 3.0}
    params = SamplingParams(stop=stop, stop_token_ids=ids, logit_bias=bias)
    stop.append("b")
    ids.append(9)
    bias[7] = 1.0
    assert params == SamplingParams(stop="a", stop_token_ids=[1], logit_bias={2: 3.0})


def test_it_is_frozen_and_a_changed_copy_is_checked_again():
    params = SamplingParams(stop=["a"], logit_bias={1: 2})
    with pytest.raises(dataclasses.FrozenInstanceError):
        params.max_tokens = 3
    assert dataclasses.replace(params, max_tokens=3).stop_strings == ("a",)
    with pytest.raises(ValueError, match="top_p"):
        dataclasses.replace(params, top_p=2)


def test_tokens_beyond_the_vocabulary_are_named():
    SamplingParams(stop_token_ids=[99], logit_bias={99: 1}).validate_vocab(100)
    with pytest.raises(ValueError, match="stop_token_ids names token 1000000, but the vocabulary has 100 tokens"):
        SamplingParams(stop_token_ids=[5, 10**6]).validate_vocab(100)
    with pytest.raises(ValueError, match="logit_bias names token 100, but the vocabulary has 100 tokens"):
        SamplingParams(logit_bias={100: 1}).validate_vocab(100)


def test_zero_temperature_is_greedy_and_each_filter_counts_as_one():
    assert SamplingParams().is_greedy
    assert not SamplingParams(temperature=0.1).is_greedy
    assert not SamplingParams(top_k=0).has_filters
    assert all(SamplingParams(**f).has_filters for f in ({"top_k": 1}, {"top_p": 0.9}, {"min_p": 0.1}))


ADVICE = {"temperature": 0.6, "top_p": 0.95, "repetition_penalty": 1.1}


@pytest.mark.parametrize(
    ("given", "temperature", "top_p", "repetition_penalty"),
    [
        ({}, 0.6, 0.95, 1.1),
        ({"max_tokens": 3}, 0.6, 0.95, 1.1),
        ({"temperature": 1.5}, 1.5, 0.95, 1.1),
        ({"top_p": 1.0}, 0.6, 1.0, 1.1),
        ({"temperature": 0}, 0.0, 1.0, 1.0),
        ({"temperature": 0, "repetition_penalty": 1.2}, 0.0, 1.0, 1.2),
    ],
)
def test_advice_counts_for_fields_that_were_not_given(given, temperature, top_p, repetition_penalty):
    """A default that was written out was given; temperature 0, if given, takes no advice at all."""
    params = SamplingParams(**given)
    for each in (params, copy.copy(params), pickle.loads(pickle.dumps(params))):
        advised = each.advised(ADVICE)
        assert (advised.temperature, advised.top_p) == (temperature, top_p)
        assert advised.repetition_penalty == repetition_penalty
        assert advised.max_tokens == params.max_tokens
        assert each == params == SamplingParams(**given)
    assert params.advised({}) is params


def test_a_copy_made_by_replace_and_one_from_a_message_are_complete():
    assert dataclasses.replace(SamplingParams(max_tokens=3)).advised(ADVICE) == SamplingParams(max_tokens=3)
    received = msgspec.msgpack.decode(msgspec.msgpack.encode(SamplingParams()), type=SamplingParams)
    assert received.advised(ADVICE) == SamplingParams()


def test_the_signature_shows_fields_and_defaults():
    parameters = inspect.signature(SamplingParams).parameters
    assert list(parameters) == [field.name for field in dataclasses.fields(SamplingParams)]
    assert parameters["max_tokens"].default == 1024


def test_a_given_temperature_takes_no_min_p_that_was_chosen_for_another() -> None:
    advice = {"temperature": 0.2, "top_p": 0.9, "min_p": 0.75}
    hot = SamplingParams(temperature=1.2).advised(advice)
    assert (hot.temperature, hot.top_p, hot.min_p) == (1.2, 0.9, 0.0)
    assert SamplingParams(temperature=1.2, min_p=0.1).advised(advice).min_p == 0.1
    assert SamplingParams(top_p=0.5).advised(advice).min_p == 0.75

"""Ways to turn a head: how configs spell them, what transformers makes of them, what is refused by name."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from support.hf_configs import MINIMAL, YARN, read
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from minisgl.models import RopeConfig

LONGROPE: dict[str, Any] = {
    "rope_type": "longrope",
    "short_factor": [1.0 + i / 24 for i in range(24)],
    "long_factor": [1.0 + i for i in range(24)],
    "original_max_position_embeddings": 64,
}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}


@pytest.mark.parametrize(
    "spelling",
    [
        {"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5} | LLAMA3},
        {"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3"} | LLAMA3},
        {"rope_theta": 5e5, "rope_scaling": {"type": "llama3"} | LLAMA3},
        {"rope_theta": 5e5, "rope_scaling": {"type": "llama3"} | LLAMA3, "rope_parameters": None},
    ],
)
def test_every_spelling_of_llama3_rope_is_the_same(spelling: dict[str, Any]):
    assert read(**spelling).rope == RopeConfig(
        rope_type="llama3", theta=5e5, factor=8.0, original_max_position_embeddings=64
    )


def test_llama3_rope_without_an_original_length_takes_the_context_length():
    scaling = {key: value for key, value in LLAMA3.items() if key != "original_max_position_embeddings"}
    assert read(rope_scaling={"type": "llama3"} | scaling).rope.original_max_position_embeddings == 512


@pytest.mark.parametrize("spelling", ["rope_parameters", "rope_scaling"])
@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "default"},
        {"rope_type": "linear", "factor": 3.0},
        {"rope_type": "dynamic", "factor": 3.0},
        {"rope_type": "llama3"} | LLAMA3,
        YARN,
        YARN | {"attention_factor": 0.7, "truncate": False},
        YARN | {"mscale": 1.5, "mscale_all_dim": 0.5},
        YARN | {"mscale": 1.5, "beta_fast": 16.0, "beta_slow": 2.0},
        YARN | {"factor": None},
        {"rope_type": "yarn", "factor": 2.0},
        LONGROPE,
        LONGROPE | {"factor": 3.0},
        LONGROPE | {"attention_factor": 1.7},
    ],
)
def test_frequencies_and_attention_factors_equal_those_of_transformers(rope: dict[str, Any], spelling: str):
    theirs = LlamaRotaryEmbedding(LlamaConfig(**MINIMAL, head_dim=48, rope_parameters=rope | {"rope_theta": 5e4}))
    ours = read(head_dim=48, **{spelling: rope | {"rope_theta": 5e4}}).rope
    torch.testing.assert_close(ours.inverse_frequencies(48, 64), theirs.inv_freq, rtol=1e-6, atol=0)
    assert ours.attention_factor == pytest.approx(theirs.attention_scaling)


def test_longrope_takes_the_long_factors_where_texts_over_the_original_context_are_served():
    rope = read(head_dim=48, rope_parameters=LONGROPE).rope
    assert torch.equal(rope.inverse_frequencies(48, 64), rope.inverse_frequencies(48, 1))
    assert not torch.equal(rope.inverse_frequencies(48, 65), rope.inverse_frequencies(48, 64))


def test_yarn_reaches_as_far_as_its_factor_says_and_a_window_is_compared_with_that():
    assert read(rope_scaling=YARN).max_position_embeddings == 512
    stretched = {"rope_scaling": YARN | {"original_max_position_embeddings": 512}}
    assert read(**stretched).max_position_embeddings == 2048
    with pytest.raises(ValueError, match="sliding_window=512 is in use"):
        read(**stretched, sliding_window=512)


@pytest.mark.parametrize("rope_type", ["su", "yarn"])
def test_early_names_of_longrope_are_read(rope_type: str):
    assert read(head_dim=48, rope_scaling=LONGROPE | {"rope_type": rope_type}) == read(
        head_dim=48, rope_scaling=LONGROPE
    )


def test_an_original_context_at_the_top_has_the_last_word():
    assert read(original_max_position_embeddings=32, rope_scaling=YARN).rope.original_max_position_embeddings == 32


def test_layers_without_rope_are_those_with_a_zero_in_the_list_or_every_fourth():
    smollm3 = {"architectures": ["SmolLM3ForCausalLM"], "num_hidden_layers": 5}
    assert read(**smollm3).layers_without_rope == {3}
    assert read(**smollm3, no_rope_layer_interval=2).layers_without_rope == {1, 3}
    assert read(**smollm3, no_rope_layers=[0, 1, 1, 1, 0]).layers_without_rope == {0, 4}
    with pytest.raises(ValueError, match=r"no_rope_layers=\[1, 2\] .* 5 zeros and ones"):
        read(**smollm3, no_rope_layers=[1, 2])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"rope_scaling": {"type": "xpos", "factor": 4.0}},
            "rope_type='xpos' is not supported; known: default, linear, dynamic, llama3, yarn, longrope",
        ),
        ({"rope_parameters": {"rope_type": "linear"}}, "rope_type='linear' needs factor"),
        ({"rope_parameters": {"rope_type": "llama3", "factor": 2.0}}, "needs low_freq_factor, high_freq_factor"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}, "differ by kind of layer"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor=0.5 is not supported in LlamaForCausalLM"),
        ({"architectures": ["Phi3ForCausalLM"], "partial_rotary_factor": 0.2}, "head_dim=16, 3 elements of which turn"),
        ({"architectures": ["Phi3ForCausalLM"], "partial_rotary_factor": 1.5}, "partial_rotary_factor=1.5"),
        ({"rope_parameters": LONGROPE}, "short_factor has 24 numbers, but 8 pairs of a head turn"),
        ({"rope_parameters": LONGROPE | {"long_factor": None}}, "long_factor=None"),
        ({"rope_parameters": YARN | {"beta_fast": "32"}}, "beta_fast='32'"),
    ],
)
def test_a_way_to_turn_that_is_not_supported_is_refused_by_name(changes: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=re.escape(message)):
        read(**changes)


def test_a_context_that_is_no_count_is_refused_before_a_factor_is_derived_from_it():
    with pytest.raises(ValueError, match="max_position_embeddings=1000"):
        read(rope_parameters=YARN | {"factor": None}, max_position_embeddings=10**400)


@pytest.mark.parametrize(
    "bad",
    [
        "linear",
        {"rope_type": ["a"]},
        {"rope_type": "default", "rope_theta": "a"},
        {"rope_type": "default", "rope_theta": 0},
        {"rope_type": "linear", "factor": 0},
        YARN | {"rope_theta": 1},
        YARN | {"truncate": 1},
        YARN | {"factor": 1e9},
        YARN | {"beta_fast": 1e308},
        {"rope_type": "linear", "factor": 10**400},
        LONGROPE | {"original_max_position_embeddings": 10**400},
        LONGROPE | {"original_max_position_embeddings": 1},
        LONGROPE | {"short_factor": [0.0] * 24},
        {"rope_type": "llama3"} | LLAMA3 | {"high_freq_factor": 1.0},
    ],
)
def test_absurd_parameters_of_rope_are_value_errors(bad: object):
    with pytest.raises(ValueError, match=r"config|rope"):
        read(rope_parameters=bad)

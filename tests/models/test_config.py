"""Configs of Hugging Face, of both generations: what is read, what is assumed, what is refused by name."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from transformers import (
    GptOssConfig,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    Olmo2Config,
    Olmo3Config,
    Phi3Config,
    Qwen2Config,
    Qwen2MoeConfig,
    Qwen3Config,
    Qwen3MoeConfig,
    SmolLM3Config,
)
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from minisgl.models import MODELS, ModelConfig, RopeConfig
from minisgl.moe import ClampedGate

MINIMAL: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "max_position_embeddings": 512,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "vocab_size": 512,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
LONGROPE: dict[str, Any] = {
    "rope_type": "longrope",
    "short_factor": [1.0 + i / 24 for i in range(24)],
    "long_factor": [1.0 + i for i in range(24)],
    "original_max_position_embeddings": 64,
}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}


def read(**changes: Any) -> ModelConfig:
    return ModelConfig.from_hf(MINIMAL | changes)


def test_what_a_minimal_config_leaves_out_has_the_defaults_of_hugging_face():
    config = read()
    assert (config.num_qo_heads, config.num_kv_heads, config.head_dim) == (4, 4, 16)
    assert (config.attention_bias, config.mlp_bias, config.tie_word_embeddings) == (False, False, False)
    assert (config.rms_norm_eps, config.dtype) == (1e-6, torch.float32)
    assert config.rope == RopeConfig()


def test_nulls_at_the_top_count_as_absent():
    names = "head_dim num_key_value_heads rope_theta rope_scaling rope_parameters sliding_window dtype"
    nulls = dict.fromkeys([*names.split(), "layer_types"])
    assert read(**nulls) == read()


@pytest.mark.parametrize("name", ["dtype", "torch_dtype"])
def test_both_spellings_of_the_dtype_are_read(name: str):
    assert read(**{name: "bfloat16"}).dtype == torch.bfloat16


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


@pytest.mark.parametrize(
    "theirs",
    [GptOssConfig, LlamaConfig, MistralConfig, Olmo2Config, Olmo3Config, Phi3Config, Qwen2Config, SmolLM3Config],
)
def test_what_a_config_leaves_out_is_what_the_class_of_transformers_has(theirs: Any):
    minimal = MINIMAL | {"architectures": [theirs.__name__.replace("Config", "ForCausalLM")], "num_attention_heads": 32}
    assert ModelConfig.from_hf(minimal) == ModelConfig.from_hf(theirs(**minimal).to_dict())


OLMO3 = MINIMAL | {"architectures": ["Olmo3ForCausalLM"], "num_hidden_layers": 4, "max_position_embeddings": 65536}


@pytest.mark.parametrize(
    "spelling",
    [
        {"rope_theta": 1e5, "rope_scaling": YARN},
        {"rope_parameters": {"full_attention": YARN | {"rope_theta": 1e5}, "sliding_attention": {"rope_theta": 1e5}}},
        {"rope_theta": 1e5, "rope_parameters": {"full_attention": YARN, "sliding_attention": None}},
    ],
)
def test_what_stretches_an_olmo_3_does_so_in_layers_without_a_window(spelling: dict[str, Any]):
    config = ModelConfig.from_hf(OLMO3 | spelling)
    assert config.windows == (4096, 4096, 4096, 0)
    assert config.local_layers == {0, 1, 2}
    assert config.rope == RopeConfig.from_hf({"rope_theta": 1e5, "rope_parameters": YARN})
    assert config.local_rope == RopeConfig(theta=1e5)


def test_an_olmo_3_that_lists_its_layers_has_windows_in_these():
    listed = ["full_attention", "sliding_attention", "full_attention", "full_attention"]
    assert ModelConfig.from_hf(OLMO3 | {"layer_types": listed, "sliding_window": 64}).windows == (0, 64, 0, 0)


def test_the_config_of_gpt_oss_is_read_as_it_is_published():
    scaling = {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096}
    config = ModelConfig.from_hf(
        MINIMAL
        | {"architectures": ["GptOssForCausalLM"], "head_dim": 64, "num_local_experts": 32, "num_key_value_heads": 2}
        | {"rope_theta": 150000, "rope_scaling": scaling | {"beta_fast": 32.0, "beta_slow": 1.0, "truncate": False}}
        | {"initial_context_length": 4096, "max_position_embeddings": 131072, "swiglu_limit": 6.0}
        | {"num_experts_per_tok": 4, "experts_per_token": 4, "attention_bias": True, "sliding_window": 128}
    )
    assert config.windows == (128, 0)
    assert config.rope == RopeConfig.from_hf({"rope_theta": 150000, "rope_parameters": scaling | {"truncate": False}})
    assert config.experts is not None
    assert config.experts.clamped_gate == ClampedGate(alpha=1.702, limit=6.0)
    assert (config.experts.num_chosen, config.experts.inner_size) == (4, 128)
    assert config.dtype == torch.bfloat16, "no key says it, but it is what its numbers are made for"


def test_a_mistral_that_says_nothing_of_a_window_has_one_and_with_null_it_has_none():
    mistral = {"architectures": ["MistralForCausalLM"], "max_position_embeddings": 8192, "num_key_value_heads": 4}
    assert read(**mistral).windows == (4096, 4096)
    assert read(**mistral, sliding_window=None).windows == ()
    assert read(**mistral | {"max_position_embeddings": 4096}).windows == (), "it hides nothing"


@pytest.mark.parametrize("max_window_layers", [0, 3, 28])
@pytest.mark.parametrize("use_sliding_window", [True, False])
@pytest.mark.parametrize("window", ["left out", None, 128])
@pytest.mark.parametrize(
    "theirs", [MistralConfig, MixtralConfig, Phi3Config, Qwen2Config, Qwen2MoeConfig, Qwen3Config, Qwen3MoeConfig]
)
def test_the_layers_with_a_window_are_those_of_transformers(
    theirs: Any, window: Any, use_sliding_window: bool, max_window_layers: int
):
    changes = {"num_hidden_layers": 6, "num_attention_heads": 32, "max_window_layers": max_window_layers}
    changes |= {"use_sliding_window": use_sliding_window, "max_position_embeddings": 8192}
    changes |= {} if window == "left out" else {"sliding_window": window}
    minimal = MINIMAL | changes | {"architectures": [theirs.__name__.replace("Config", "ForCausalLM")]}
    config = theirs(**minimal)
    kinds = getattr(config, "layer_types", ["sliding_attention"] * 6)
    windows = tuple((kind == "sliding_attention" and config.sliding_window) or 0 for kind in kinds)
    assert ModelConfig.from_hf(minimal).windows == (windows if any(windows) else ())


def test_in_smollm3_a_window_is_for_layers_that_do_not_turn_unless_a_list_says_otherwise():
    smollm3 = {"architectures": ["SmolLM3ForCausalLM"], "num_hidden_layers": 4, "sliding_window": 128}
    assert read(**smollm3).windows == ()
    assert read(**smollm3, use_sliding_window=True).windows == (0, 0, 0, 128)
    listed = ["sliding_attention", "full_attention", "full_attention", "full_attention"]
    assert read(**smollm3, use_sliding_window=True, layer_types=listed).windows == (128, 0, 0, 0)


def test_serving_shorter_texts_than_the_window_drops_it():
    config = read(architectures=["MistralForCausalLM"], num_key_value_heads=4, sliding_window=128)
    assert config.windows == (128, 128)
    assert config.serve(129).windows == (128, 128)
    assert config.serve(128).windows == ()


QWEN2 = {"architectures": ["Qwen2ForCausalLM"], "use_sliding_window": True, "sliding_window": 64}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sliding_window": 128}, "sliding_window=128 is in use, and only full_attention is supported here"),
        (
            {"layer_types": ["full_attention", "sliding_attention"]},
            "sliding_attention, which is not supported in Llama",
        ),
        (QWEN2 | {"layer_types": ["full_attention", "chunked_attention"]}, "layer_types has chunked_attention"),
        (QWEN2 | {"layer_types": ["sliding_attention"]}, "layer_types has 1 entries for num_hidden_layers=2"),
        (
            QWEN2 | {"layer_types": ["sliding_attention"] * 2, "use_sliding_window": False},
            "no sliding_window is in use",
        ),
        (QWEN2 | {"layer_types": ["sliding_attention"] * 2, "sliding_window": None}, "no sliding_window is in use"),
        (QWEN2 | {"max_window_layers": 0, "sliding_window": 0}, "sliding_window=0"),
        (QWEN2 | {"max_window_layers": -1}, "max_window_layers=-1"),
        (
            {"architectures": ["MistralForCausalLM"], "layer_types": ["full_attention", "sliding_attention"]},
            "where every layer is sliding_attention by sliding_window",
        ),
    ],
)
def test_windows_that_nobody_can_make_sense_of_are_refused(changes: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=re.escape(message)):
        read(**changes)


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
        ({"architectures": ["FooForCausalLM"]}, "unknown model architecture 'FooForCausalLM'; known: LlamaForCausalLM"),
        ({"architectures": ["LlamaForCausalLM", "Foo"]}, "names 2 architectures"),
        ({"architectures": None}, "lacks 'architectures'"),
        ({"hidden_size": None}, "lacks 'hidden_size'"),
        ({"hidden_act": "gelu"}, "hidden_act='gelu' is not supported"),
        ({"dtype": "float8_e4m3fn"}, "dtype='float8_e4m3fn' is not supported"),
        ({"num_key_value_heads": 3}, "num_kv_heads=3 does not divide num_qo_heads=4"),
        ({"head_dim": 15}, "head_dim=15 is odd"),
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
def test_what_is_not_supported_is_refused_by_name(changes: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=re.escape(message)):
        read(**changes)


def test_a_sliding_window_that_is_not_in_use_is_accepted():
    assert read(sliding_window=128, use_sliding_window=False) == read()
    assert read(sliding_window=512) == read(), "as wide as the context"


@pytest.mark.parametrize("name", MODELS.names)
def test_every_entry_of_the_registry_leads_to_the_class_of_its_name(name: str):
    assert MODELS[name]().__name__ == name


@pytest.mark.parametrize("bad", [0, -1, 1.5, "8", True, 10**12, [8]])
@pytest.mark.parametrize("key", ["num_attention_heads", "hidden_size", "vocab_size", "num_hidden_layers", "head_dim"])
def test_a_count_that_is_none_is_refused_by_key_and_value(key: str, bad: object):
    with pytest.raises(ValueError, match=rf"{key}="):
        read(**{key: bad})


@pytest.mark.parametrize(
    ("key", "bad"),
    [
        ("rms_norm_eps", "x"),
        ("rms_norm_eps", -1),
        ("rms_norm_eps", float("nan")),
        ("tie_word_embeddings", "no"),
        ("architectures", 5),
        ("architectures", [["LlamaForCausalLM"]]),
        ("layer_types", 5),
        ("rope_parameters", "linear"),
        ("rope_parameters", {"rope_type": ["a"]}),
        ("rope_parameters", {"rope_type": "default", "rope_theta": "a"}),
        ("rope_parameters", {"rope_type": "default", "rope_theta": 0}),
        ("rope_parameters", {"rope_type": "linear", "factor": 0}),
        ("rope_parameters", YARN | {"rope_theta": 1}),
        ("rope_parameters", YARN | {"truncate": 1}),
        ("rope_parameters", LONGROPE | {"original_max_position_embeddings": 1}),
        ("rope_parameters", LONGROPE | {"short_factor": [0.0] * 24}),
        ("rope_parameters", {"rope_type": "llama3"} | LLAMA3 | {"high_freq_factor": 1.0}),
    ],
)
def test_absurd_values_are_value_errors(key: str, bad: object):
    with pytest.raises(ValueError, match=r"config|rope"):
        read(**{key: bad})

"""Configs of Hugging Face, of both generations: what is read, what is assumed, what is refused by name."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from support.hf_configs import MINIMAL, read
from transformers import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from minisgl.models import MODELS, ModelConfig, RopeConfig
from minisgl.models.registry import model_type_of
from minisgl.moe import ClampedGate


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


@pytest.mark.parametrize("name", MODELS.names)
def test_what_a_config_leaves_out_is_what_the_class_of_transformers_has(name: str):
    text = MINIMAL | {"architectures": [name], "num_attention_heads": 32}
    minimal = text if name.endswith("ForCausalLM") else {"architectures": [name], "text_config": text}
    theirs = CONFIG_MAPPING[model_type_of(name)](**minimal).to_dict()
    assert len(theirs) > len(minimal)
    assert ModelConfig.from_hf(minimal) == ModelConfig.from_hf(theirs)


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
    assert config.attn_sinks
    assert config.rope == RopeConfig.from_hf({"rope_theta": 150000, "rope_parameters": scaling | {"truncate": False}})
    assert config.experts is not None
    assert config.experts.clamped_gate == ClampedGate(alpha=1.702, limit=6.0)
    assert (config.experts.num_chosen, config.experts.inner_size) == (4, 128)
    assert config.dtype == torch.bfloat16, "no key says it, but it is what its numbers are made for"


def test_a_null_in_place_of_rope_parameters_leaves_those_of_the_class():
    minimal = {"architectures": ["GptOssForCausalLM"], "num_attention_heads": 32}
    assert read(**minimal, rope_parameters=None) == read(**minimal)
    assert read(**minimal).rope.rope_type == "yarn"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["FooForCausalLM"]}, "unknown model architecture 'FooForCausalLM'; known: LlamaForCausalLM"),
        ({"architectures": ["LlamaForCausalLM", "Foo"]}, "names 2 architectures"),
        (
            {"architectures": ["LlamaForCausalLM", "Foo"], "model_type": "qwen2"},
            "model_type='qwen2' does not say which",
        ),
        ({"architectures": None}, "lacks 'architectures' and 'model_type'"),
        (
            {"architectures": [], "model_type": "mamba"},
            "model_type='mamba' is unknown; known: gemma2, gemma3, gemma3_te",
        ),
        ({"architectures": [], "model_type": ["llama"]}, "model_type=['llama'] is unknown"),
        ({"hidden_size": None}, "lacks 'hidden_size'"),
        ({"hidden_act": "gelu"}, "hidden_act='gelu' is not supported"),
        ({"dtype": "float8_e4m3fn"}, "dtype='float8_e4m3fn' is not supported"),
        ({"num_key_value_heads": 3}, "num_kv_heads=3 does not divide num_qo_heads=4"),
        ({"head_dim": 15}, "head_dim=15 is odd"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(changes: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=re.escape(message)):
        read(**changes)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("is_causal", False),
        ("use_bidirectional_attention", True),
        ("per_layer_config", {"0": {"intermediate_size": 64}}),
    ],
)
@pytest.mark.parametrize("name", MODELS.names)
def test_what_transformers_heeds_in_any_class_and_no_file_here_does_is_refused(name: str, key: str, value: object):
    """is_causal=false, for one, lets a token see all others: logits of another model, from the same weights."""
    with pytest.raises(ValueError, match=re.escape(f"{key}={value!r} is not supported")):
        read(architectures=[name], num_attention_heads=32, **{key: value})


@pytest.mark.parametrize("name", MODELS.names)
def test_the_model_type_is_that_by_which_transformers_picks_the_class(name: str):
    assert MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[model_type_of(name)] == name
    assert read(architectures=[name], num_attention_heads=32, model_type=model_type_of(name))
    with pytest.raises(
        ValueError, match=f"model_type='exaone4' is not supported in {name}; only '{model_type_of(name)}'"
    ):
        read(architectures=[name], model_type="exaone4")


@pytest.mark.parametrize("architectures", [None, [], "absent", "several"])
@pytest.mark.parametrize("name", MODELS.names)
def test_the_model_type_says_the_architecture_where_the_config_names_none_or_several(name: str, architectures: Any):
    named = ["SomethingElse", name] if architectures == "several" else architectures
    config = MINIMAL | {"num_attention_heads": 32, "model_type": model_type_of(name), "architectures": named}
    if architectures == "absent":
        del config["architectures"]
    assert ModelConfig.from_hf(config) == read(architectures=[name], num_attention_heads=32)


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
    ],
)
def test_absurd_values_are_value_errors(key: str, bad: object):
    with pytest.raises(ValueError, match="config"):
        read(**{key: bad})

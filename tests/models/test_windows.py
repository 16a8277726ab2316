"""Which layers of a config have a sliding window, and which windows nobody can make sense of."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from support.hf_configs import MINIMAL, YARN, read
from transformers import (
    Gemma3TextConfig,
    MistralConfig,
    MixtralConfig,
    Olmo3Config,
    Phi3Config,
    Qwen2Config,
    Qwen2MoeConfig,
    Qwen3Config,
    Qwen3MoeConfig,
)

from minisgl.models import ModelConfig, RopeConfig

OLMO3 = MINIMAL | {"architectures": ["Olmo3ForCausalLM"], "num_hidden_layers": 4, "max_position_embeddings": 65536}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
QWEN2 = {"architectures": ["Qwen2ForCausalLM"], "use_sliding_window": True, "sliding_window": 64}


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


@pytest.mark.parametrize("name", ["Olmo3ForCausalLM", "Gemma3ForCausalLM"])
def test_rope_parameters_for_no_kind_of_layer_are_refused_where_there_are_two(name: str):
    """Transformers takes no notice of them."""
    with pytest.raises(ValueError, match="rope_parameters has factor, rope_type, and not only full_attention"):
        read(architectures=[name], rope_parameters={"rope_type": "linear", "factor": 2.0})


@pytest.mark.parametrize("theirs", [Olmo3Config, Gemma3TextConfig])
@pytest.mark.parametrize(
    "changes",
    [
        {"original_max_position_embeddings": 16, "rope_parameters": {"full_attention": YARN}},
        {"original_max_position_embeddings": 16, "rope_scaling": YARN},
        {"rope_scaling": {"factor": 3.0}, "rope_parameters": {"full_attention": YARN}},
        {"rope_parameters": {"sliding_attention": {"rope_type": "llama3", "rope_theta": 1e3} | LLAMA3}},
    ],
)
def test_two_sets_of_rope_parameters_are_joined_as_in_transformers(theirs: Any, changes: dict[str, Any]):
    name = theirs.__name__.replace("TextConfig", "Config").replace("Config", "ForCausalLM")
    minimal = MINIMAL | {"architectures": [name], "num_attention_heads": 32}
    expected = ModelConfig.from_hf(theirs(**minimal | copy.deepcopy(changes)).to_dict() | {"architectures": [name]})
    found = ModelConfig.from_hf(minimal | changes)
    assert (found.rope, found.local_rope) == (expected.rope, expected.local_rope)
    assert "yarn" in repr(found.rope) or "llama3" in repr(found.local_rope)


def test_an_olmo_3_that_lists_its_layers_has_windows_in_these():
    listed = ["full_attention", "sliding_attention", "full_attention", "full_attention"]
    assert ModelConfig.from_hf(OLMO3 | {"layer_types": listed, "sliding_window": 64}).windows == (0, 64, 0, 0)


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


def test_a_sliding_window_that_is_not_in_use_is_accepted():
    assert read(sliding_window=128, use_sliding_window=False) == read()
    assert read(sliding_window=512) == read(), "as wide as the context"

"""What Gemma's files spell in several ways, or leave out; its logits are compared in test_against_transformers."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from support.dense_attention import all_logits, load_saved, make_model
from support.dense_models import CONFIGS, save_dense_model
from support.gguf_variants import as_architecture, write_gguf

from minisgl.models import ModelConfig, create_model, open_checkpoint
from minisgl.models.rope import RopeConfig
from minisgl.utils.gguf_file import GGUFFile

GEMMA2: dict[str, Any] = {
    "architectures": ["Gemma2ForCausalLM"],
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 72,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "max_position_embeddings": 8192,
    "hidden_act": "gelu_pytorch_tanh",
}
GEMMA3 = GEMMA2 | {"architectures": ["Gemma3ForCausalLM"], "num_hidden_layers": 7, "sliding_window": 512}
# As published: gemma-3-4b, whose config leaves most to the class.
GEMMA3_4B: dict[str, Any] = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "eos_token_id": [1, 106],
    "model_type": "gemma3",
    "text_config": {
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
    },
    "torch_dtype": "bfloat16",
    "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27},
}
IMAGES = CONFIGS["gemma3-images, the part for text"]
IDS = list(range(20))


def test_a_config_with_images_is_that_of_its_part_for_text_and_of_the_class():
    config = ModelConfig.from_hf(GEMMA3_4B)
    assert (config.num_layers, config.hidden_size, config.vocab_size) == (34, 2560, 262208)
    assert (config.num_qo_heads, config.num_kv_heads, config.head_dim) == (8, 4, 256)
    assert config.windows[:7] == (1024,) * 5 + (0, 1024)
    assert config.rope == RopeConfig(rope_type="linear", factor=8.0, theta=1e6)
    assert config.local_rope == RopeConfig(theta=1e4)
    assert (config.hidden_act, config.attn_scale, config.logit_softcap) == ("gelu_pytorch_tanh", 1 / 16, 0)
    assert (config.tie_word_embeddings, config.max_position_embeddings) == (True, 131072)
    assert config.dtype == torch.bfloat16


def test_whether_the_head_is_tied_is_said_for_the_whole_model_not_for_its_part_for_text():
    """So transformers has it: the class ties them by the config that is its own."""
    text = GEMMA3_4B["text_config"]
    for tied, config in ((True, {}), (True, {"tie_word_embeddings": True}), (False, {"tie_word_embeddings": False})):
        parts = {"text_config": text | {"tie_word_embeddings": not tied}}
        assert ModelConfig.from_hf(GEMMA3_4B | parts | config).tie_word_embeddings is tied


def test_both_spellings_of_two_rotations_are_read():
    old = {"rope_theta": 5e5, "rope_local_base_freq": 2e4, "rope_scaling": {"rope_type": "linear", "factor": 2.0}}
    new = {"full_attention": {"rope_type": "linear", "rope_theta": 5e5, "factor": 2.0},
           "sliding_attention": {"rope_type": "default", "rope_theta": 2e4}}  # fmt: skip
    configs = [ModelConfig.from_hf(GEMMA3 | keys) for keys in (old, {"rope_parameters": new})]
    assert configs[0] == configs[1]
    assert configs[0].local_rope == RopeConfig(theta=2e4)


def test_parameters_of_one_rotation_leave_the_other_its_default():
    config = ModelConfig.from_hf(GEMMA3 | {"rope_parameters": {"sliding_attention": {"rope_theta": 3.0}}})
    assert config.local_rope is not None
    assert (config.rope.theta, config.local_rope.theta) == (1e6, 3.0)


def test_a_local_rotation_of_a_part_of_a_head_is_refused():
    part = {"sliding_attention": {"rope_type": "default", "partial_rotary_factor": 0.5}}
    with pytest.raises(ValueError, match=r"partial_rotary_factor=0\.5 is not supported in Gemma3ForCausalLM"):
        ModelConfig.from_hf(GEMMA3 | {"rope_parameters": part})


def test_a_local_layer_turns_locally_though_its_window_is_as_wide_as_the_context():
    config = ModelConfig.from_hf(GEMMA3 | {"sliding_window": 8192, "sliding_window_pattern": 3})
    assert config.windows == ()
    assert config.local_layers == {0, 1, 3, 4, 6}


def test_gemma2_has_windows_in_every_second_layer_and_caps_unless_they_are_null():
    config = ModelConfig.from_hf(GEMMA2)
    assert config.windows == (4096, 0, 4096, 0)
    assert (config.attn_softcap, config.logit_softcap, config.attn_scale) == (50.0, 30.0, 1 / 16)
    config = ModelConfig.from_hf(GEMMA2 | {"attn_logit_softcapping": None, "final_logit_softcapping": None})
    assert (config.attn_softcap, config.logit_softcap) == (0.0, 0.0)


@pytest.mark.parametrize("config", [GEMMA2, GEMMA3])
@pytest.mark.parametrize(
    ("key", "value"),
    [("hidden_activation", "gelu"), ("query_pre_attn_scalar", 0)],
)
def test_what_is_not_served_is_refused_by_name(config: dict[str, Any], key: str, value: Any):
    with pytest.raises(ValueError, match="hidden_act='gelu'" if value == "gelu" else key):
        ModelConfig.from_hf(config | {key: value})


def test_hidden_act_says_nothing_where_the_activation_has_a_key_of_its_own():
    assert ModelConfig.from_hf(GEMMA2 | {"hidden_act": "relu"}).hidden_act == "gelu_pytorch_tanh"
    assert ModelConfig.from_hf(GEMMA2 | {"hidden_activation": "gelu_new"}).hidden_act == "gelu_pytorch_tanh"


def test_weights_for_images_are_left_alone_by_either_prefix_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    folder = save_dense_model(IMAGES, tmp_path / "model")
    expected = all_logits(load_saved(folder), IDS)
    saved = load_file(folder / "model.safetensors")
    in_memory = {name.replace("language_model.model.", "model.language_model."): t for name, t in saved.items()}
    in_memory = {name.replace("language_model.lm_head", "lm_head"): tensor for name, tensor in in_memory.items()}
    published = {name.replace("model.language_model.", "language_model.model."): t for name, t in in_memory.items()}
    published = {name.replace("lm_head", "language_model.lm_head"): tensor for name, tensor in published.items()}
    assert in_memory.keys().isdisjoint(name for name in published if "embed_tokens" in name or "lm_head" in name)

    for tensors in (in_memory, published):
        caplog.clear()
        with caplog.at_level(logging.INFO, "minisgl"):
            model = make_model(open_checkpoint(folder).hf_config(), tensors.items())
        num_for_images = sum("vision" in name or "projector" in name for name in tensors)
        assert f"{num_for_images} tensors of the model's part for images are not used" in caplog.text
        assert torch.equal(all_logits(model, IDS), expected)


def test_dummy_norms_multiply_by_one():
    model = create_model(ModelConfig.from_hf(GEMMA3 | {"sliding_window": 8}), torch.bfloat16, torch.device("cpu"))
    model.init_dummy_weights(seed=0)
    assert all((weight == 1).all() for name, weight in model.named_parameters() if "norm" in name)


def gguf_config(path: Path, architecture: str, **metadata: Any) -> dict[str, Any]:
    """Of the random Llama in DATA by another name, with more metadata, whose keys have __ for a dot."""
    named = {f"{architecture}.{key.replace('__', '.')}": value for key, value in metadata.items()}
    base = GGUFFile(as_architecture(path, architecture))
    tensors = {name: (base.read(name), "F32") for name in base.tensors}
    other = write_gguf(path.with_name("other.gguf"), base.metadata | named, tensors)
    return open_checkpoint(other).hf_config()


@pytest.mark.parametrize(("architecture", "num_layers"), [("gemma2", 46), ("gemma3", 62)])
def test_scores_of_the_largest_models_have_their_own_scale_in_gguf(architecture: str, num_layers: int, tmp_path: Path):
    sizes = {"attention__key_length": 32, "attention__value_length": 32, "rope__dimension_count": 32}
    small = gguf_config(tmp_path / "model.gguf", architecture, block_count=num_layers - 1, **sizes)
    large = gguf_config(tmp_path / "model.gguf", architecture, block_count=num_layers, **sizes)
    assert (small["query_pre_attn_scalar"], large["query_pre_attn_scalar"]) == (32, 64)


@pytest.mark.parametrize(
    ("architecture", "metadata", "local"),
    [
        ("gemma2", {}, [0, 2, 4, 6]),
        ("gemma3", {"attention__sliding_window": 8}, [0, 1, 2, 3, 4, 6]),
        ("gemma3", {"attention__sliding_window": 8, "attention__sliding_window_pattern": 3}, [0, 1, 3, 4, 6]),
        ("gemma3", {}, []),
        ("gemma2", {"attention__sliding_window_pattern": [False] * 6 + [True]}, [6]),
    ],
)
def test_local_layers_of_gguf(architecture: str, metadata: dict[str, Any], local: list[int], tmp_path: Path):
    config = ModelConfig.from_hf(gguf_config(tmp_path / "model.gguf", architecture, block_count=7, **metadata))
    assert sorted(config.local_layers) == local


def test_caps_and_the_local_rotation_of_gguf(tmp_path: Path):
    metadata = {"rope__freq_base_swa": 5e3, "final_logit_softcapping": 7.0, "attention__sliding_window": 8}
    config = ModelConfig.from_hf(gguf_config(tmp_path / "model.gguf", "gemma3", **metadata))
    assert config.local_rope == RopeConfig(theta=5e3)
    assert config.logit_softcap == 7.0

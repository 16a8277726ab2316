"""GGUF files seen as Hugging Face checkpoints: configuration, names, order of rows, end tokens."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf import GGMLQuantizationType
from support.gguf_variants import DATA, as_architecture, llama_variant

from minisgl import LLM
from minisgl.models.checkpoint import open_checkpoint
from minisgl.models.gguf_checkpoint import halves_of_pairs
from minisgl.models.gguf_names import hf_name
from minisgl.tokenizer import load_tokenizer
from minisgl.utils.gguf_file import GGUFFile
from minisgl.utils.model_store import SMOLLM2

LLAMA = DATA / "llama_f32.gguf"


def config_of(path: Path) -> dict[str, Any]:
    return open_checkpoint(path).hf_config()


def test_the_config_of_a_llama_is_what_transformers_derives() -> None:
    """Values: AutoConfig.from_pretrained(..., gguf_file=...) of transformers 5.24, which leaves architectures out."""
    assert config_of(LLAMA) == {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "head_dim": 64,
        "hidden_act": "silu",
        "hidden_size": 256,
        "intermediate_size": 256,
        "max_position_embeddings": 256,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": 4,
        "num_hidden_layers": 1,
        "num_key_value_heads": 2,
        "rms_norm_eps": 9.999999747378752e-06,
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
        "tie_word_embeddings": False,
        "vocab_size": 512,
    }


@pytest.mark.parametrize("name", ["sha256-abc", "X.GGUF", "model"])
def test_a_file_by_another_name_is_read_as_the_same(tmp_path: Path, name: str) -> None:
    (tmp_path / name).symlink_to(LLAMA)
    for path in (tmp_path / name, tmp_path):
        assert config_of(path) == config_of(LLAMA)
        assert load_tokenizer(path).vocab_size == load_tokenizer(LLAMA).vocab_size


def test_a_file_without_a_head_is_tied(tmp_path: Path) -> None:
    assert config_of(llama_variant(tmp_path / "tied.gguf", leave_out=("output.weight",)))["tie_word_embeddings"]


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"llama.rope.scaling.type": "none"}, {"rope_type": "default"}),
        ({"llama.rope.scaling.factor": 4.0}, {"rope_type": "linear", "factor": 4.0}),
        ({"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 1.0}, {"rope_type": "default"}),
        ({"llama.rope.scaling.factor": 0.0}, {"rope_type": "default"}),
        ({"llama.rope.scale_linear": 2.0}, {"rope_type": "linear", "factor": 2.0}),
        (
            {
                "llama.rope.scaling.type": "yarn",
                "llama.rope.scaling.factor": 4.0,
                "llama.rope.scaling.original_context_length": 64,
                "llama.rope.scaling.yarn_beta_fast": 16.0,
            },
            {
                "rope_type": "yarn",
                "factor": 4.0,
                "attention_factor": 1 + 0.1 * math.log(4),
                "original_max_position_embeddings": 64,
                "beta_fast": 16.0,
            },
        ),
        ({"llama.rope.freq_base": None}, {"rope_type": "default", "rope_theta": 10000.0}),
        ({"llama.rope.freq_base": 500000.0}, {"rope_type": "default", "rope_theta": 500000.0}),
    ],
)
def test_rope_is_given_as_transformers_writes_it(
    metadata: dict[str, Any], expected: dict[str, Any], tmp_path: Path
) -> None:
    path = llama_variant(tmp_path / "rope.gguf", metadata=metadata)
    assert config_of(path)["rope_parameters"] == {"rope_theta": 10000.0} | expected


def test_one_value_for_each_layer_is_one_value_if_all_agree(tmp_path: Path) -> None:
    path = llama_variant(tmp_path / "list.gguf", metadata={"llama.attention.head_count_kv": [2, 2, 2]})
    assert config_of(path)["num_key_value_heads"] == 2


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"llama.attention.head_count_kv": [2, 4]}, r"llama\.attention\.head_count_kv is \[2, 4\]"),
        ({"llama.block_count": None}, r"llama\.block_count is None, not a number"),
        ({"llama.attention.value_length": 32}, r"llama\.attention\.value_length differs .* 64"),
        ({"llama.rope.dimension_count": 32}, r"llama\.rope\.dimension_count rotates a part of head_dim=64"),
        ({"llama.attention.head_count": 0}, r"llama\.attention\.head_count is 0, not an integer above 0"),
        (
            {"llama.block_count": 2**32 - 1, "llama.expert_count": 8},
            r"llama\.block_count is 4294967295, not .* up to 1024",
        ),
        ({"llama.attention.head_count": 2.5}, r"llama\.attention\.head_count is 2\.5, not an integer above 0"),
        ({"llama.embedding_length": True}, r"llama\.embedding_length is True, not a number"),
        ({"llama.rope.freq_base": math.nan}, r"llama\.rope\.freq_base is nan, not a number"),
        ({"llama.rope.scaling.factor": -2.0}, r"llama\.rope\.scaling\.factor is -2\.0, below 0"),
        ({"split.count": 3}, "one of the 3 parts"),
        ({"split.count": "x"}, "one of the x parts"),
        (
            {"llama.rope.scaling.yarn_log_multiplier": 0.5},
            r"llama\.rope\.scaling\.yarn_log_multiplier is 0\.5, which is not supported",
        ),
        ({"llama.attention.causal": False}, r"llama\.attention\.causal is False, which is not supported"),
    ],
)
def test_what_the_models_cannot_do_is_refused_by_its_key(
    metadata: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = llama_variant(tmp_path / "refused.gguf", metadata=metadata)
    with pytest.raises(ValueError, match=message):
        open_checkpoint(path)


def test_an_unknown_architecture_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"other\.gguf: architecture 'mamba' is not supported"):
        open_checkpoint(as_architecture(tmp_path / "other.gguf", "mamba"))


def test_one_tensor_of_a_type_that_is_not_read_is_refused_by_both_names(tmp_path: Path) -> None:
    """As a file of mixed types may have it; the type is behind the name and the two dimensions."""
    path = llama_variant(tmp_path / "mixed.gguf", lambda name: "Q4_0")
    content = bytearray(path.read_bytes())
    at = content.index(name := b"blk.0.attn_v.weight") + len(name) + 4 + 2 * 8
    assert content[at] == GGMLQuantizationType.Q4_0
    content[at] = GGMLQuantizationType.IQ1_M
    path.write_bytes(content)
    message = r"mixed\.gguf, tensor 'blk\.0\.attn_v\.weight': type IQ1_M is not supported, only F32, .*Q4_0.*Q6_K"
    for load in (open_checkpoint, load_tokenizer, LLM):
        with pytest.raises(ValueError, match=message):
            load(path)


def test_a_tensor_with_an_unknown_name_is_named(tmp_path: Path) -> None:
    path = llama_variant(tmp_path / "ssm.gguf", more={"blk.0.ssm_in.weight": torch.zeros(8, 256)})
    with pytest.raises(ValueError, match=r"ssm\.gguf: tensor 'blk\.0\.ssm_in\.weight'"):
        open_checkpoint(path)


def test_a_file_without_an_embedding_is_refused(tmp_path: Path) -> None:
    path = llama_variant(tmp_path / "none.gguf", leave_out=("token_embd.weight",))
    with pytest.raises(ValueError, match=r"has no tensor 'token_embd\.weight'"):
        open_checkpoint(path)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("blk.12.attn_q.bias", "model.layers.12.self_attn.q_proj.bias"),
        ("blk.0.attn_k_norm.weight", "model.layers.0.self_attn.k_norm.weight"),
        ("blk.3.ffn_down.weight", "model.layers.3.mlp.down_proj.weight"),
        ("blk.3.ffn_norm.weight", "model.layers.3.post_attention_layernorm.weight"),
        ("output.weight", "lm_head.weight"),
        ("rope_freqs.weight", "rope_freqs.weight"),
        ("blk.0.attn_q.scale", None),
        ("blk.x.attn_q.weight", None),
        ("output.bias", None),
    ],
)
def test_names_are_hugging_faces(name: str, expected: str | None) -> None:
    assert hf_name(name, "llama") == expected


def test_the_rows_of_halves_are_found_in_pairs() -> None:
    """Two heads of 6 rows: llama.cpp keeps rows (0, 3), (1, 4), (2, 5) of each head together."""
    stored = torch.tensor([0, 3, 1, 4, 2, 5, 10, 13, 11, 14, 12, 15])
    expected = [0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15]
    assert stored[halves_of_pairs(12, num_heads=2)].tolist() == expected


def test_rows_of_q_and_k_are_reordered_for_llama_only(tmp_path: Path) -> None:
    biases = {"blk.0.attn_q.bias": torch.arange(256.0), "blk.0.attn_v.bias": torch.arange(128.0)}
    for name in ("llama", "qwen2", "qwen3", "smollm3"):
        file = GGUFFile(as_architecture(tmp_path / f"{name}.gguf", name, biases))
        loaded = dict(open_checkpoint(file.path).iter_weights())
        for part, heads in (("q", 4), ("k", 2)):
            stored = file.read(f"blk.0.attn_{part}.weight")
            expected = stored[halves_of_pairs(len(stored), heads)] if name in ("llama", "smollm3") else stored
            assert torch.equal(loaded[f"model.layers.0.self_attn.{part}_proj.weight"], expected)
        assert (loaded["model.layers.0.self_attn.q_proj.bias"][1] == 2) == (name in ("llama", "smollm3"))
        assert loaded["model.layers.0.self_attn.v_proj.bias"][1] == 1


def test_biases_show_in_the_config_but_for_qwen2(tmp_path: Path) -> None:
    biases = {"blk.0.attn_q.bias": torch.zeros(256)}
    assert config_of(as_architecture(tmp_path / "llama.gguf", "llama", biases))["attention_bias"] is True
    assert "attention_bias" not in config_of(as_architecture(tmp_path / "qwen2.gguf", "qwen2", biases))


def test_end_tokens_are_those_of_text_turn_and_message(tmp_path: Path) -> None:
    more = {"tokenizer.ggml.eot_token_id": 5, "tokenizer.ggml.eom_token_id": 0}
    path = llama_variant(tmp_path / "ends.gguf", metadata=more)
    assert open_checkpoint(path).end_token_ids() == {2, 5, 0}


def test_end_tokens_are_also_control_tokens_by_their_text(tmp_path: Path) -> None:
    texts = ["<unk>", "<s>", "</s>", "<|endoftext|>", "<|im_end|>", "<|im_start|>", "<|end|>"]
    tokens = {"tokenizer.ggml.tokens": texts, "tokenizer.ggml.token_type": [2, 3, 3, 3, 3, 3, 1]}
    for more, expected in (({}, {2, 3, 4}), ({"tokenizer.ggml.unknown_token_id": 3}, {2, 4})):
        path = llama_variant(tmp_path / "texts.gguf", metadata=tokens | more)
        assert open_checkpoint(path).end_token_ids() == expected


@pytest.mark.parametrize(("other", "expected"), [("<|user|>", {1, 2}), ("<|return|>", {0, 2})])
def test_the_end_of_a_message_ends_a_text_only_where_none_follows(
    other: str, expected: set[int], tmp_path: Path
) -> None:
    tokens = {"tokenizer.ggml.tokens": [other, "<|end|>", "</s>"], "tokenizer.ggml.token_type": [3, 3, 3]}
    assert open_checkpoint(llama_variant(tmp_path / "end.gguf", metadata=tokens)).end_token_ids() == expected


def test_an_end_token_that_is_no_id_is_refused(tmp_path: Path) -> None:
    path = llama_variant(tmp_path / "ends.gguf", metadata={"tokenizer.ggml.eot_token_id": [5, 6]})
    with pytest.raises(ValueError, match=r"ends\.gguf: tokenizer\.ggml\.eot_token_id is \[5, 6\], not a token id"):
        open_checkpoint(path).end_token_ids()


def test_a_file_without_tokens_has_no_end_token(tmp_path: Path) -> None:
    path = llama_variant(tmp_path / "bare.gguf", metadata={"tokenizer.ggml.eos_token_id": None})
    assert open_checkpoint(path).end_token_ids() == frozenset()
    assert "eos_token_id" not in config_of(path)


@pytest.mark.slow
def test_the_config_of_smollm2_is_what_transformers_derives() -> None:
    if not SMOLLM2.is_pulled:
        pytest.skip("SmolLM2 is not pulled")
    checkpoint = open_checkpoint(SMOLLM2.path)
    expected = {
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "head_dim": 64,
        "vocab_size": 49152,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 9.999999747378752e-06,
        "rope_parameters": {"rope_theta": 100000.0, "rope_type": "default"},
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    config = checkpoint.hf_config()
    assert {key: config[key] for key in expected} == expected
    assert checkpoint.end_token_ids() == {2}
    assert checkpoint.num_weights == 2 + 9 * 30

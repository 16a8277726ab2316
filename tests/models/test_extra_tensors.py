"""Tensors that a model has no place for: left out with their names where no answer depends on them, else refused."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from support.dense_attention import all_logits, make_model, read_json, tiny_weights
from support.gguf_variants import DATA, llama_variant

from minisgl.models.checkpoint import open_checkpoint
from minisgl.models.extra_tensors import part_in_answers
from minisgl.models.gguf_names import hf_name

CONFIG, IDS = read_json("tied", "config.json"), read_json("tied", "ref.json")["ids"]
WEIGHTS = tiny_weights("tied")
# Of classes of transformers with more than a language model, and of files that people made of language models.
HARMLESS = [
    *("score.weight", "classifier.bias", "v_head.summary.weight", "value_head.norm.weight", "extra"),
    *("vision_tower.vision_model.encoder.layers.0.layer_norm1.weight", "model.vision_embed_tokens.weight"),
    *("multi_modal_projector.linear_1.bias", "model.image_newline", "mtp.layers.0.norm.weight", "logit_scale"),
    *("model.layers.0.self_attn.rotary_emb.inv_freq", "model.layers.1.self_attn.rotary_emb.cos_cached"),
    *("model.embeddings.position_ids", "position_ids", "model.layers.0.self_attn.masked_bias", "model.extra.weight"),
]
REFUSED = [
    ("model.layers.0.self_attn.q_proj.bias", "it belongs to model.layers.0.self_attn.q_proj"),
    ("model.layers.0.self_attn.q_proj.weight_scale", "it belongs to model.layers.0.self_attn.q_proj"),
    ("model.layers.1.mlp.down_proj.weight.absmax", "it belongs to model.layers.1.mlp.down_proj"),
    ("model.layers.0.self_attn.v_proj.lora_A.default.weight", "it belongs to model.layers.0.self_attn.v_proj"),
    ("model.embed_tokens.scales", "it belongs to model.embed_tokens"),
    ("model.norm.bias", "it belongs to model.norm"),
    ("lm_head.bias", "it belongs to lm_head"),
    ("base_model.model.model.layers.0.mlp.lora_B.weight", "an adapter, which has to be merged"),
    ("prompt_encoder.default.embedding.weight", "an adapter"),
    ("model.layers.0.self_attn.q_norm.weight", "it stands in a layer"),
    ("model.layers.0.self_attn.k_scale", "it stands in a layer"),
    ("model.layers.0.mlp.experts.0.up_proj.weight", "it stands in a layer"),
    ("model.layers.0.mamba.in_proj.weight", "it stands in a layer"),
    ("model.layers.2.mlp.up_proj.weight", "it stands in a layer"),
    ("model.embed_norm.weight", "a norm or positions"),
    ("model.ln_f.weight", "a norm or positions"),
    ("model.embed_positions.weight", "a norm or positions"),
]
HARMLESS_IN_GGUF = ["v.blk.0.ln1.weight", "v.post_ln.weight", "mm.0.bias", "mm.norm.weight", "cls.weight", "extra"]
REFUSED_IN_GGUF = [
    ("blk.0.attn_q.scale", "it belongs to blk.0.attn_q"),
    ("blk.0.attn_q.weight.lora_a", "it belongs to blk.0.attn_q"),
    ("output.bias.more", "it belongs to output"),
    ("blk.0.attn_sub_norm.weight", "it stands in a layer"),
    ("blk.0.exp_probs_b.bias", "it stands in a layer"),
    ("token_embd_norm.weight", "a norm or positions"),
    ("position_embd.weight", "a norm or positions"),
]


@pytest.mark.parametrize("name", HARMLESS)
def test_what_no_answer_depends_on_may_be_left_out(name: str) -> None:
    assert part_in_answers(name, WEIGHTS.__contains__) is None


@pytest.mark.parametrize("name", HARMLESS_IN_GGUF)
def test_what_no_answer_depends_on_may_be_left_out_of_gguf(name: str) -> None:
    assert part_in_answers(name, lambda known: hf_name(known, "llama") is not None) is None


@pytest.mark.parametrize(("name", "reason"), REFUSED)
def test_what_takes_part_in_answers_is_refused_with_the_reason(name: str, reason: str) -> None:
    with pytest.raises(ValueError, match=rf"unknown tensor '{name}': .* no such weight, and .*{reason}"):
        make_model(CONFIG, [*WEIGHTS.items(), (name, torch.ones(2))])


@pytest.mark.parametrize(("name", "reason"), REFUSED_IN_GGUF)
def test_what_takes_part_in_answers_is_refused_in_gguf(tmp_path: Path, name: str, reason: str) -> None:
    path = llama_variant(tmp_path / "more.gguf", more={name: torch.ones(32)})
    with pytest.raises(ValueError, match=rf"more\.gguf: tensor '{name}' belongs to no model .*, and .*{reason}"):
        open_checkpoint(path)


def test_extra_tensors_are_named_in_one_warning_and_change_no_logit(caplog: pytest.LogCaptureFixture) -> None:
    expected = all_logits(make_model(CONFIG, WEIGHTS.items()), IDS)
    caplog.clear()
    extra = {name: torch.ones(3) for name in ("score.weight", "v_head.bias")}
    with caplog.at_level(logging.WARNING):
        logits = all_logits(make_model(CONFIG, (extra | WEIGHTS).items()), IDS)
    assert torch.equal(logits, expected)
    assert [record.message for record in caplog.records] == [
        "tensors of the checkpoint that the model has no use for are left out (2): score.weight, v_head.bias"
    ]


def test_of_very_many_extra_tensors_ten_are_named(caplog: pytest.LogCaptureFixture) -> None:
    extra = {f"vision_tower.{i}.weight": torch.ones(1) for i in range(25)}
    make_model(CONFIG, (extra | WEIGHTS).items())
    assert "vision_tower.9.weight and 15 more" in caplog.text


def test_a_checkpoint_under_other_names_says_what_came_beside_what_is_missing() -> None:
    renamed = {name.replace("model.", "transformer."): tensor for name, tensor in WEIGHTS.items()}
    with pytest.raises(ValueError, match=r"tensors never came: .*; \d+ came that are unknown, such as 'transformer\."):
        make_model(CONFIG, renamed.items())


def test_a_gguf_file_with_an_extra_tensor_is_loaded_without_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = llama_variant(tmp_path / "more.gguf", more={"extra.weight": torch.ones(32)})
    checkpoint = open_checkpoint(path)
    assert "left out (1): extra.weight" in caplog.text
    assert checkpoint.num_weights == open_checkpoint(DATA / "llama_f32.gguf").num_weights
    assert "extra.weight" not in dict(checkpoint.iter_weights())


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool])
def test_buffers_of_integers_are_left_out_of_safetensors(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, dtype: torch.dtype
) -> None:
    (tmp_path / "config.json").write_text("{}")
    tensors = {"a.weight": torch.ones(2), "embeddings.position_ids": torch.ones(1, 8, dtype=dtype)}
    save_file(tensors, tmp_path / "model.safetensors")
    checkpoint = open_checkpoint(tmp_path)
    assert list(dict(checkpoint.iter_weights())) == ["a.weight"]
    assert checkpoint.num_weights == 1
    assert "left out (1): embeddings.position_ids" in caplog.text


@pytest.mark.parametrize("name", ["model.layers.0.self_attn.q_proj.qweight", "a.g_idx", "a.weight", "lm_head.bias"])
def test_integers_that_answers_depend_on_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.json").write_text("{}")
    save_file({"a.weight": torch.ones(2)} | {name: torch.ones(2, dtype=torch.int32)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=f"tensor '{name}': dtype I32 is not supported"):
        open_checkpoint(tmp_path)

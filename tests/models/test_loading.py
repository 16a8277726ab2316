"""Weights come in one by one: what is taken, what is refused by name, what a tied head does."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from support.dense_attention import CPU, all_logits, make_model, read_json, tiny_weights

from minisgl.distributed import SINGLE, TPInfo
from minisgl.models import BaseCausalLM, ModelConfig, create_model

TIED = read_json("tied", "config.json")
UNTIED = read_json("untied", "config.json")
IDS = read_json("tied", "ref.json")["ids"]
TIED_LOGITS = torch.tensor(read_json("tied", "ref.json")["last_logits"])


def new_model(hf_config: dict[str, Any], tp: TPInfo = SINGLE) -> BaseCausalLM:
    return create_model(ModelConfig.from_hf(hf_config), torch.float32, CPU, tp)


def test_an_unknown_tensor_is_refused_by_name():
    with pytest.raises(ValueError, match=r"'model\.layers\.2\.mlp\.up_proj\.weight'"):
        new_model(UNTIED).load_weight("model.layers.2.mlp.up_proj.weight", torch.zeros(128, 64))


def test_a_bias_that_the_config_does_not_have_is_refused_by_name():
    with pytest.raises(ValueError, match=r"'model\.layers\.0\.self_attn\.q_proj\.bias'"):
        new_model(UNTIED).load_weight("model.layers.0.self_attn.q_proj.bias", torch.zeros(64))


@pytest.mark.parametrize("tp", [SINGLE, TPInfo(1, 2)])
def test_a_wrong_shape_is_refused_with_both_shapes_of_the_whole_tensor(tp: TPInfo):
    with pytest.raises(ValueError, match=r"k_proj\.weight': expected shape \[32, 64\], got \[64, 64\]"):
        new_model(UNTIED, tp).load_weight("model.layers.0.self_attn.k_proj.weight", torch.zeros(64, 64))


def test_every_tensor_that_never_came_is_named():
    model = new_model(UNTIED)
    absent = {"model.norm.weight", "model.layers.1.mlp.gate_proj.weight", "lm_head.weight"}
    for name, tensor in tiny_weights("untied").items():
        if name not in absent:
            model.load_weight(name, tensor)
    with pytest.raises(ValueError, match="3 tensors never came") as error:
        model.finish_loading()
    assert all(name in str(error.value) for name in absent)


def test_precomputed_rotary_frequencies_are_ignored():
    weights = tiny_weights("tied") | {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.full((8,), 7.0)}
    logits = all_logits(make_model(TIED, weights.items()), IDS)
    torch.testing.assert_close(logits[-1, :16], TIED_LOGITS, atol=1e-3, rtol=0)


def test_rope_freqs_divide_the_frequencies():
    """Factors that are all 4 are the same as positions squeezed by 4, which is rope_type linear."""
    weights = tiny_weights("untied") | {"rope_freqs.weight": torch.full((8,), 4.0)}
    ref = read_json("rope_linear", "ref.json")
    assert all_logits(make_model(UNTIED, weights.items()), ref["ids"]).argmax(-1).tolist() == ref["argmax"]


def test_rope_freqs_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"'rope_freqs\.weight': expected shape \[8\], got \[32\]"):
        new_model(UNTIED).load_weight("rope_freqs.weight", torch.ones(32))


def test_a_tied_model_allocates_the_embedding_once():
    model = new_model(TIED)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    sizes = {weight.data_ptr(): weight.numel() for weight in model.parameters()}
    assert sum(sizes.values()) == sum(tensor.numel() for tensor in tiny_weights("tied").values())


@pytest.mark.parametrize("head_comes_first", [True, False])
def test_a_stray_head_of_a_tied_model_is_not_used_and_that_is_logged(
    caplog: pytest.LogCaptureFixture, head_comes_first: bool
):
    head = {"lm_head.weight": tiny_weights("untied")["lm_head.weight"]}
    weights = head | tiny_weights("tied") if head_comes_first else tiny_weights("tied") | head
    with caplog.at_level(logging.WARNING, "minisgl"):
        ours = all_logits(make_model(TIED, weights.items()), IDS)
    torch.testing.assert_close(ours[-1, :16], TIED_LOGITS, atol=1e-3, rtol=0)
    assert "lm_head.weight of the checkpoint is not used" in caplog.text


def test_dummy_weights_are_finite_and_the_same_for_a_seed():
    models = [new_model(UNTIED) for _ in range(3)]
    for model, seed in zip(models, (1, 1, 2), strict=True):
        model.init_dummy_weights(seed)
    first, again, other = (all_logits(model, IDS) for model in models)
    assert first.isfinite().all()
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_dummy_weights_do_not_depend_on_the_number_of_ranks():
    whole, half = new_model(UNTIED), new_model(UNTIED, TPInfo(1, 2))
    whole.init_dummy_weights(0)
    half.init_dummy_weights(0)
    assert torch.equal(whole.model.embed_tokens.weight[256:], half.model.embed_tokens.weight)


def test_finishing_frees_every_matrix_that_it_packs():
    model = make_model(UNTIED, tiny_weights("untied").items())
    if model.lm_head.packed is None:
        pytest.skip("no prepacked matmul on this processor")
    matrices = [name for name, weight in model.named_parameters() if weight.dim() == 2]
    assert matrices == ["model.embed_tokens.weight"]


def test_ranks_that_cannot_share_the_heads_are_refused_with_the_numbers():
    with pytest.raises(ValueError, match="tensor_parallel_size=3 does not divide num_qo_heads=4"):
        new_model(UNTIED, TPInfo(0, 3))
    with pytest.raises(ValueError, match="tensor_parallel_size=4 does not divide num_kv_heads=2"):
        new_model(UNTIED, TPInfo(0, 4))

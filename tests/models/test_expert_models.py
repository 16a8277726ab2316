"""Models with experts: logits of transformers, however a checkpoint writes the experts' weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from support.dense_attention import CPU, all_logits
from support.gguf_variants import write_gguf
from support.packed import is_grouped
from support.tiny_experts import CONFIGS, IN_GGUF, make_expert_model, save_expert_model, write_expert_gguf
from transformers import GptOssConfig, Qwen3MoeConfig

from minisgl.distributed import TPInfo
from minisgl.kernel import has_cpp
from minisgl.models import BaseCausalLM, ModelConfig, create_model, load_model, open_checkpoint
from minisgl.moe import Experts
from minisgl.utils.gguf_file import GGUFFile

# GPT-OSS has its experts in stacks only.
FORMS = [(name, stacked) for name in CONFIGS for stacked in (False, True) if stacked or "gpt-oss" not in name]
IDS = torch.randint(0, 256, (50,), generator=torch.Generator().manual_seed(1)).tolist()


def load(folder: Path, dtype: torch.dtype = torch.float32) -> BaseCausalLM:
    checkpoint = open_checkpoint(folder)
    return load_model(checkpoint, ModelConfig.from_hf(checkpoint.hf_config()), dtype, CPU)


def config_of(name: str, **changes: Any) -> ModelConfig:
    config = CONFIGS[name].to_dict() | {"architectures": [f"{type(make_expert_model(CONFIGS[name])).__name__}"]}
    return ModelConfig.from_hf(config | changes)


@pytest.mark.parametrize(("name", "stacked"), FORMS)
def test_logits_equal_those_of_transformers(tmp_path: Path, name: str, stacked: bool):
    folder = save_expert_model(CONFIGS[name], tmp_path, stacked)
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        assert any(file.get_slice(key).get_shape()[2:] for key in file.keys()) == stacked  # noqa: SIM118
    with torch.inference_mode():
        expected = make_expert_model(CONFIGS[name])(torch.tensor([IDS])).logits[0]

    ours = all_logits(load(folder), IDS)

    assert expected.std() > 0.3, "logits too flat to tell anything"
    torch.testing.assert_close(ours, expected, atol=1e-3, rtol=0)


@pytest.mark.parametrize("name", IN_GGUF)
def test_logits_of_a_gguf_file_equal_those_of_transformers(tmp_path: Path, name: str):
    theirs = make_expert_model(CONFIGS[name])
    with torch.inference_mode():
        expected = theirs(torch.tensor([IDS])).logits[0]
    ours = all_logits(load(write_expert_gguf(tmp_path / "model.gguf", theirs)), IDS)
    torch.testing.assert_close(ours, expected, atol=1e-3, rtol=0)


def test_a_gguf_file_with_a_matrix_for_each_expert_is_read_too(tmp_path: Path):
    """What llama.cpp wrote before April 2024, when Mixtral was all that had experts."""
    theirs = make_expert_model(CONFIGS["mixtral"])
    stacked, single = (
        all_logits(load(write_expert_gguf(tmp_path / f"{stacked}.gguf", theirs, stacked=stacked)), IDS)
        for stacked in (True, False)
    )
    assert torch.equal(stacked, single)


WHOLE_GROUPS = {"hidden_size": 64, "moe_intermediate_size": 64}
TYPES = {"all in integers": ("Q4_1", "Q8_0"), "down in floats": ("Q4_1", "F16"), "gate in floats": ("F16", "Q8_0")}


@pytest.mark.parametrize("types", TYPES.values(), ids=TYPES)
def test_experts_of_a_gguf_file_stay_integers_on_a_cpu(tmp_path: Path, types: tuple[str, str]):
    """Up is of one type always: a weight of which a part is grouped becomes floats."""
    theirs = make_expert_model(Qwen3MoeConfig(**CONFIGS["qwen3-moe"].to_diff_dict() | WHOLE_GROUPS))
    choose = {"gate": types[0], "up": "Q4_1", "down": types[1]}
    path = write_expert_gguf(tmp_path / "model.gguf", theirs, lambda name: choose[name.split("_")[1]])
    file, model = GGUFFile(path), load(path)
    floats = {name: (file.read(name).float(), "F32") for name in file.tensors}
    exact = all_logits(load(write_gguf(tmp_path / "floats.gguf", file.metadata, floats)), IDS)
    torch.testing.assert_close(all_logits(model, IDS), exact, atol=1e-3, rtol=0)
    if has_cpp(torch.empty(0)):
        packed = [pair for layer in model.modules() if isinstance(layer, Experts) for pair in layer.packed]
        assert len(packed) == 16
        for pair in packed:
            assert [is_grouped(weight) for weight in pair] == [types[0] != "F16", types[1] != "F16"]


def test_experts_of_gpt_oss_in_mxfp4_are_those_of_the_same_numbers_in_floats(tmp_path: Path):
    sizes = {"hidden_size": 64, "intermediate_size": 64}
    theirs = make_expert_model(GptOssConfig(**CONFIGS["gpt-oss"].to_dict() | sizes))
    path = write_expert_gguf(tmp_path / "model.gguf", theirs, lambda name: "MXFP4")
    file = GGUFFile(path)
    assert {info.type for info in file.tensors.values() if len(info.shape) == 3} == {"MXFP4"}
    floats = {name: (file.read(name).float(), "F32") for name in file.tensors}
    exact = all_logits(load(write_gguf(tmp_path / "floats.gguf", file.metadata, floats)), IDS)
    torch.testing.assert_close(all_logits(load(path), IDS), exact, atol=1e-3, rtol=0)


def test_bfloat16_stays_near_float32(tmp_path: Path):
    """Experts are packed where the processor has a kernel for it, and computed with as they are elsewhere."""
    folder = save_expert_model(CONFIGS["qwen2-moe"], tmp_path)
    exact, rounded = all_logits(load(folder), IDS), all_logits(load(folder, torch.bfloat16), IDS)
    assert rounded.dtype == torch.bfloat16
    error = (rounded.float() - exact).norm(dim=-1) / exact.norm(dim=-1)
    assert error.median() < 0.05  # some tokens choose other experts


def test_packing_frees_the_stacks(tmp_path: Path):
    model = load(save_expert_model(CONFIGS["mixtral"], tmp_path), torch.bfloat16)
    if model.lm_head.packed is None:
        pytest.skip("no prepacked matmul on this processor")
    assert [name for name, weight in model.named_parameters() if weight.dim() == 3] == []


def test_dummy_weights_do_not_depend_on_the_number_of_ranks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("minisgl.layers.packed.has_cpp", lambda weight: False)
    monkeypatch.setattr("minisgl.layers.packed.pack_weight", lambda *given: None)  # which some processors have besides
    whole, half = (create_model(config_of("mixtral"), torch.float32, CPU, tp) for tp in (TPInfo(), TPInfo(1, 2)))
    whole.init_dummy_weights(0)
    half.init_dummy_weights(0)
    all_experts, part = (model.model.layers[0].block_sparse_moe.experts for model in (whole, half))
    gate, up = all_experts.gate_up.chunk(2, dim=1)
    assert torch.equal(part.gate_up, torch.cat((gate[:, 48:], up[:, 48:]), dim=1))
    assert torch.equal(part.down, all_experts.down[:, :, 48:])


def test_a_matrix_of_an_expert_that_never_came_is_named_as_checkpoints_name_it(tmp_path: Path):
    model = create_model(config_of("mixtral"), torch.float32, CPU)
    absent = "model.layers.1.block_sparse_moe.experts.4.w2.weight"
    for name, tensor in open_checkpoint(save_expert_model(CONFIGS["mixtral"], tmp_path)).iter_weights():
        if name != absent:
            model.load_weight(name, tensor)
    with pytest.raises(ValueError, match=f"1 tensors never came: {absent}"):
        model.finish_loading()


def test_a_stack_of_the_wrong_shape_is_refused_by_name():
    model = create_model(config_of("qwen3-moe"), torch.float32, CPU)
    stack = "model.layers.0.mlp.experts.down_proj"
    with pytest.raises(ValueError, match=rf"'{stack}': expected the experts' matrices in a stack, got \[48, 40\]"):
        model.load_weight(stack, torch.zeros(48, 40))
    with pytest.raises(ValueError, match=r"experts\.0\.down_proj\.weight': expected shape \[48, 40\], got \[40, 48\]"):
        model.load_weight(stack, torch.zeros(8, 40, 48))
    with pytest.raises(ValueError, match=r"unknown tensor 'model\.layers\.1\.mlp\.experts\.8\.down_proj\.weight'"):
        model.load_weight("model.layers.1.mlp.experts.down_proj", torch.zeros(9, 48, 40))


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("mixtral", {"num_experts_per_tok": 6}, "num_experts_per_tok=6 is more than num_experts=5"),
        ("mixtral", {"num_local_experts": 0}, "num_local_experts=0"),
        ("qwen3-moe", {"mlp_only_layers": "all"}, "mlp_only_layers='all'"),
        ("qwen3-moe", {"moe_intermediate_size": -1}, "moe_intermediate_size=-1"),
    ],
)
def test_a_config_that_makes_no_sense_is_refused_by_name(name: str, changes: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        config_of(name, **changes)


def test_ranks_that_cannot_share_an_expert_are_refused_with_the_numbers():
    config = config_of("qwen3-moe", moe_intermediate_size=41)
    with pytest.raises(ValueError, match="tensor_parallel_size=2 does not divide the inner size of experts=41"):
        create_model(config, torch.float32, CPU, TPInfo(0, 2))

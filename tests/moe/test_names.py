"""However a checkpoint writes experts' weights, the layer is given a matrix and a bias of each by one name."""

from __future__ import annotations

import torch

from minisgl.moe import ExpertNames, split_experts
from minisgl.utils.grouped_tensor import GroupedTensor

PREFIX = "model.layers.3.mlp.experts"
MIXTRAL = ExpertNames("w1", "w3", "w2")


def numbered(*shape: int) -> torch.Tensor:
    return torch.arange(float(torch.Size(shape).numel())).view(shape)


def test_a_tensor_that_is_no_expert_s_passes_as_it_is():
    for name in ("model.layers.3.mlp.gate.weight", f"{PREFIX}.7.gate_proj.weight", "model.embed_tokens.weight"):
        tensor = numbered(2, 3)
        assert list(split_experts(name, tensor)) == [(name, tensor)]


def test_a_stack_of_gate_and_up_is_both_of_every_expert():
    stack = numbered(2, 6, 4)
    parts = dict(split_experts(f"{PREFIX}.gate_up_proj", stack))
    assert list(parts) == [f"{PREFIX}.{expert}.{kind}_proj.weight" for expert in (0, 1) for kind in ("gate", "up")]
    for expert in (0, 1):
        assert torch.equal(parts[f"{PREFIX}.{expert}.gate_proj.weight"], stack[expert, :3])
        assert torch.equal(parts[f"{PREFIX}.{expert}.up_proj.weight"], stack[expert, 3:])


def test_a_stack_of_one_kind_and_of_its_biases_is_one_of_every_expert():
    matrices, biases = numbered(2, 3, 4), numbered(2, 3)
    for end, stack in (("weight", matrices), ("bias", biases)):
        parts = dict(split_experts(f"{PREFIX}.down_proj.{end}", stack))
        assert list(parts) == [f"{PREFIX}.{expert}.down_proj.{end}" for expert in (0, 1)]
        assert all(torch.equal(part, stack[expert]) for expert, part in enumerate(parts.values()))


def test_all_forms_take_the_names_that_the_model_s_own_checkpoints_have():
    forms = {"gate_up_proj": ["w1", "w3"] * 2, "up_proj.weight": ["w3"] * 2, "down_proj": ["w2"] * 2}
    for form, expected in forms.items():
        names = [name for name, _ in split_experts(f"{PREFIX}.{form}", numbered(2, 6, 4), MIXTRAL)]
        assert [name.split(".")[-2] for name in names] == expected
    single = [name for name, _ in split_experts(f"{PREFIX}.5.gate_proj.weight", numbered(6, 4), MIXTRAL)]
    assert single == [f"{PREFIX}.5.w1.weight"]


def test_a_stack_in_groups_gives_parts_in_groups():
    codes = torch.randint(0, 16, (2, 6, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    stack = GroupedTensor(codes, numbered(2, 6, 1), -numbered(2, 6, 1), bits=4)
    parts = dict(split_experts(f"{PREFIX}.gate_up_proj", stack))
    up = parts[f"{PREFIX}.1.up_proj.weight"]
    assert isinstance(up, GroupedTensor)
    assert torch.equal(up.dequantize(), stack.dequantize()[1, 3:])

"""The ways in which checkpoints write the weights of experts, brought to one: a matrix each, and maybe a bias.

transformers 5 stacks them when it is asked to save a model as it is in memory: [E, 2 * I, H] and [E, H, I]. GGUF files
have a stack of each kind, and of its biases; old ones have a matrix each, with the names that most models have.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch

from minisgl.moe.experts import HF_NAMES, ExpertNames
from minisgl.utils.grouped_tensor import GroupedTensor

Weight = tuple[str, torch.Tensor | GroupedTensor]
_STACK = re.compile(r"(.*\.experts)\.(gate_up|gate|up|down)_proj(\.weight|\.bias)?")
_MATRIX = re.compile(r"(.*\.experts\.\d+)\.(gate|up|down)_proj\.weight")


def split_experts(name: str, tensor: torch.Tensor | GroupedTensor, names: ExpertNames = HF_NAMES) -> Iterator[Weight]:
    """The tensor by itself or, if it stacks the weights of experts, each of them; experts' names are those of `names`.

    ValueError that names the tensor if it should be a stack and has not three dimensions, or one of biases and not two.
    """
    match = _STACK.fullmatch(name)
    if match is None:
        yield _MATRIX.sub(lambda one: f"{one[1]}.{getattr(names, one[2])}.weight", name), tensor
        return
    part = match[3] or ".weight"
    if len(tensor.shape) != (2 if part == ".bias" else 3):
        raise ValueError(f"tensor {name!r}: expected the experts' matrices in a stack, got {list(tensor.shape)}")
    kinds = ("gate", "up") if match[2] == "gate_up" else (match[2],)
    rows = tensor.shape[1] // len(kinds)
    for expert in range(tensor.shape[0]):
        matrices = _pick(tensor, expert)
        for i, kind in enumerate(kinds):
            yield f"{match[1]}.{expert}.{getattr(names, kind)}{part}", matrices.narrow(0, i * rows, rows)


def _pick(stack: torch.Tensor | GroupedTensor, expert: int) -> torch.Tensor | GroupedTensor:
    return stack[expert] if isinstance(stack, torch.Tensor) else stack.map_rows(lambda part: part[expert])

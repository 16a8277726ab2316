"""The ways in which checkpoints write the weights of experts, brought to one: a matrix each.

transformers 5 stacks them when it is asked to save a model as it is in memory: [E, 2 * I, H] and [E, H, I].
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from minisgl.moe.experts import HF_NAMES, ExpertNames
from minisgl.utils.grouped_tensor import GroupedTensor, dense

GATE_UP, DOWN = ".experts.gate_up_proj", ".experts.down_proj"
Weight = tuple[str, torch.Tensor | GroupedTensor]


def split_experts(name: str, tensor: torch.Tensor | GroupedTensor, names: ExpertNames = HF_NAMES) -> Iterator[Weight]:
    """The tensor by itself; or if it stacks the weights of experts, each with the name that `names` gives it.

    ValueError that names the tensor if it should be a stack and has no three dimensions.
    """
    if not name.endswith((GATE_UP, DOWN)):
        yield name, tensor
        return
    if len(tensor.shape) != 3:
        raise ValueError(f"tensor {name!r}: expected the experts' matrices in a stack, got {list(tensor.shape)}")
    prefix = name.rpartition(".")[0]
    for expert, matrix in enumerate(dense(tensor)):
        if name.endswith(DOWN):
            yield f"{prefix}.{expert}.{names.down}.weight", matrix
        else:
            gate, up = matrix.chunk(2)
            yield f"{prefix}.{expert}.{names.gate}.weight", gate
            yield f"{prefix}.{expert}.{names.up}.weight", up

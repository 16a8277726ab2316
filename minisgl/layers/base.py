"""What every layer with weights has: a place for them, and slots that say which checkpoint tensor goes where.

Shape letters in this folder: T tokens, H hidden size, V vocabulary, D head dim.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import nn

from minisgl.distributed import SINGLE, TPInfo
from minisgl.utils import own_pages
from minisgl.utils.grouped_tensor import GroupedTensor, dense
from minisgl.utils.own_pages import Scratch


@dataclass(frozen=True)
class Placement:
    """How a model's weights are stored, and which share of them this rank holds.

    scratch: for what is there only while the model is loaded. quantization: "none" multiplies floats; "gguf" what comes
    in integers, and "int8" and "int4" everything, as integers times activations in int8.
    deterministic: on a CPU with our kernels, a row of a product does not depend on the rows beside it; without it,
    floats are multiplied by the library that is faster for many rows.
    """

    dtype: torch.dtype
    device: torch.device
    tp: TPInfo = SINGLE
    quantization: str = "none"
    deterministic: bool = True
    scratch: Scratch = field(default_factory=Scratch, compare=False, repr=False)

    def parameter(self, *shape: int) -> nn.Parameter:
        """Memory for one weight, with nothing written to it yet; never trained."""
        on_cpu = self.device.type == "cpu"
        weight = (
            own_pages.empty(shape, self.dtype) if on_cpu else torch.empty(shape, dtype=self.dtype, device=self.device)
        )
        return nn.Parameter(weight, requires_grad=False)


@dataclass(frozen=True, eq=False)
class WeightSlot:
    """Where one checkpoint tensor goes.

    shape: of the whole tensor in the checkpoint. dest: memory for this rank's part, which starts at `start` along
    `dim` and is as long as `dest` there; or else is made of `rows`, in that order. take_groups: gets that part instead
    of `dest`, if it is grouped. offset: is added to every number. take: gets that part itself, which may be a view of
    the checkpoint, instead of `dest`.
    """

    shape: tuple[int, ...]
    dest: torch.Tensor
    dim: int = 0
    start: int = 0
    take_groups: Callable[[GroupedTensor], None] | None = None
    rows: torch.Tensor | None = None
    offset: float = 0.0
    take: Callable[[torch.Tensor], None] | None = None

    def cut(self, name: str, tensor: torch.Tensor | GroupedTensor) -> torch.Tensor | GroupedTensor:
        """This rank's part of the whole tensor, a view if it is in one piece.

        ValueError that names the tensor if its shape is wrong.
        """
        if tuple(tensor.shape) != self.shape:
            raise ValueError(f"tensor {name!r}: expected shape {list(self.shape)}, got {list(tensor.shape)}")
        if (rows := self.rows) is not None:
            return tensor[rows] if isinstance(tensor, torch.Tensor) else tensor.map_rows(lambda part: part[rows])
        return tensor.narrow(self.dim, self.start, self.dest.shape[self.dim])

    def load(self, name: str, tensor: torch.Tensor | GroupedTensor) -> None:
        """Take this rank's part of the tensor: a copy, cast to the weight's dtype, or as it is. Errors as for `cut`."""
        part = self.cut(name, tensor)
        if self.take_groups is not None and isinstance(part, GroupedTensor):
            self.take_groups(part)
        elif self.take is not None:
            self.take(dense(part))
        elif self.offset:
            self.dest.copy_(dense(part).float() + self.offset)
        elif isinstance(part, GroupedTensor):
            part.write_to(self.dest)
        else:
            self.dest.copy_(part)


class Layer(nn.Module, ABC):
    """A block that holds weights."""

    @abstractmethod
    def slots(self) -> dict[str, WeightSlot]:
        """By tensor name: "weight" is the layer's own, "q_proj.weight" that of a sibling which this layer replaces."""

    def pack(self) -> None:
        """Rearrange the loaded weights for speed and free the originals, if there is anything to win.

        Called once, when everything has come that `slots` names.
        """

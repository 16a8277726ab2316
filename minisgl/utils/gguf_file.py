"""GGUF files: tensors dequantised one at a time from the mapped file. The `gguf` package knows the block formats."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager

import numpy as np
import numpy.typing as npt
import torch

from minisgl.utils.gguf_blocks import grouped
from minisgl.utils.gguf_header import FLOATS, GGUFHeader
from minisgl.utils.group_quantizer import quantize
from minisgl.utils.grouped_tensor import GROUP, GroupedTensor

Order = npt.NDArray[np.intp]
_DTYPES = dict(zip(FLOATS, (torch.float32, torch.float16, torch.bfloat16), strict=True))


class GGUFFile(GGUFHeader):
    """The header of a GGUF file, whose errors are also this one's, and its tensors."""

    def raw(self, name: str, order: Order | None = None) -> npt.NDArray[np.uint8]:
        """The bytes of a tensor as they are in the file, [num_bytes], not copied; or copied, its rows in this order."""
        info = self.tensors[name]
        raw = self._file.bytes_at(info.offset, info.num_bytes)
        if order is None:
            return raw
        if len(info.shape) == 1 and info.type not in FLOATS:
            raise ValueError(f"{self.path}: the rows of tensor {name!r} are parts of {info.type} blocks")
        return raw.reshape(info.shape[0], -1)[order].reshape(-1)

    def resident(self, name: str) -> AbstractContextManager[None]:
        """In this block the bytes of a tensor are in memory; see `MappedFile`."""
        info = self.tensors[name]
        return self._file.resident(info.offset, info.num_bytes)

    def read(self, name: str, order: Order | None = None) -> torch.Tensor:
        """The values of a tensor, of its `shape`, on the CPU. F16 and BF16 keep their dtype, all others are float32.

        order: of its rows, if it shall be another. F32, F16 and BF16 are views of a private copy-on-write map of the
        file, unless they are in another order; the others are newly allocated.
        """
        info, raw = self.tensors[name], self.raw(name, order)
        if info.type in _DTYPES:
            return torch.from_numpy(raw).view(_DTYPES[info.type]).view(info.shape)
        from gguf import GGMLQuantizationType  # here, because few files need it, and its import is not quick
        from gguf.quants import dequantize

        with np.errstate(all="ignore"):  # Scales are whatever the file says; infinities are not ours to report.
            values = dequantize(raw.reshape(math.prod(info.shape[:-1]), -1), GGMLQuantizationType[info.type])
        return torch.from_numpy(values).view(info.shape)

    def read_grouped(self, name: str, anew: bool = False, order: Order | None = None) -> GroupedTensor | None:
        """The same values as the file has them, in integers with scales; None where its type has no such form.

        anew: in 8 bits then, which is nearly as good (0.5 % off), unless it is one of plain floats or a vector.
        """
        info = self.tensors[name]
        with np.errstate(all="ignore"):
            as_it_is = grouped(self.raw(name, order), info.type, info.shape)
        if as_it_is is not None or not anew or info.type in FLOATS or info.shape[-1] % GROUP or len(info.shape) < 2:
            return as_it_is
        return quantize(self.read(name, order), bits=8)

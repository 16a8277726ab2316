"""Weights in MXFP4 as the checkpoints of GPT-OSS have them: blocks and scales in two tensors, which become one here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import torch

from minisgl.utils.grouped_tensor import GROUP, GroupedTensor
from minisgl.utils.mxfp4 import CODES, SCALES, ZERO

# The codes of both halves of a byte, the lower one first, seen as one integer.
_PAIRS = torch.from_numpy(np.stack([np.tile(CODES, 16), np.repeat(CODES, 16)], axis=1)).view(torch.int16).flatten()
_SCALES = torch.from_numpy(SCALES)
_BLOCKS_NAME, _SCALES_NAME = "_blocks", "_scales"


def count_whole(names: Iterable[str]) -> int:
    """How many tensors `joined` makes of those with these names."""
    return sum(not name.endswith(_SCALES_NAME) for name in names)


def joined(weights: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor | GroupedTensor]]:
    """The same, but X_blocks and X_scales come as X.weight, as soon as both are there. Other tensors pass.

    X_blocks [E, N, K / 32, 16] and X_scales [E, N, K / 32], both uint8 -> [E, N, K]. ValueError that names the tensor
    if one has no other half, or the two do not fit.
    """
    halves: dict[str, torch.Tensor] = {}
    for name, tensor in weights:
        if not name.endswith((_BLOCKS_NAME, _SCALES_NAME)):
            yield name, tensor
            continue
        if tensor.dtype != torch.uint8 or tensor.dim() < 3:
            raise ValueError(f"tensor {name!r} of a weight in MXFP4 is {tensor.dtype} {list(tensor.shape)}")
        halves[name] = _codes(tensor) if name.endswith(_BLOCKS_NAME) else _pick(_SCALES, tensor)
        whole = name.removesuffix(_BLOCKS_NAME).removesuffix(_SCALES_NAME)
        if halves.keys() >= {whole + _BLOCKS_NAME, whole + _SCALES_NAME}:
            yield f"{whole}.weight", _join(whole, halves.pop(whole + _BLOCKS_NAME), halves.pop(whole + _SCALES_NAME))
    if halves:
        raise ValueError(f"tensor {min(halves)!r} of a weight in MXFP4 has no other half")


def _codes(blocks: torch.Tensor) -> torch.Tensor:
    """[E, .., 16] bytes -> [E, .., 32]; one matrix after the other, since the places in the table take four bytes."""
    out = torch.empty(blocks.shape, dtype=torch.int16)
    for into, part in zip(out, blocks, strict=True):
        into.copy_(_pick(_PAIRS, part))
    return out.view(torch.uint8)


def _pick(table: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    return table.index_select(0, places.flatten().int()).view(places.shape)


def _join(name: str, codes: torch.Tensor, scale: torch.Tensor) -> GroupedTensor:
    if scale.dim() != 3 or codes.shape != (*scale.shape, GROUP):
        raise ValueError(f"tensor {name!r} in MXFP4: there are scales {list(scale.shape)} for {list(codes.shape)}")
    return GroupedTensor(codes.flatten(2), scale, -ZERO * scale, bits=8)

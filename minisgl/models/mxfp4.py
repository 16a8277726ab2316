"""MXFP4: numbers of 4 bits, of which 32 neighbours share a power of two. They become bfloat16, which holds them all.

The names are those of the published checkpoints of GPT-OSS.
Source: OCP Microscaling Formats (MX) 1.0; transformers 5.24, `integrations/mxfp4.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

_POSITIVE = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_VALUES = torch.tensor((*_POSITIVE, *(-value for value in _POSITIVE)), dtype=torch.bfloat16)
# The two numbers of a byte, the lower four bits first, seen as one integer: [256] int32.
_PAIRS = torch.stack((_VALUES.repeat(16), _VALUES.repeat_interleave(16)), dim=1).view(torch.int32).flatten()
_BLOCKS, _SCALES = "_blocks", "_scales"


def count_whole(names: Iterable[str]) -> int:
    """How many tensors `unpacked` makes of those with these names."""
    return sum(not name.endswith(_SCALES) for name in names)


def unpacked(weights: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
    """The same, but X_blocks and X_scales come as X, as soon as both are there. Other tensors pass.

    X_blocks [E, N, K / 32, 16] and X_scales [E, N, K / 32], both uint8 -> X [E, K, N] bfloat16, as GPT-OSS has its
    weights otherwise. ValueError that names the tensor if one has no other half, or the two do not fit.
    """
    halves: dict[str, torch.Tensor] = {}
    for name, tensor in weights:
        if not name.endswith((_BLOCKS, _SCALES)):
            yield name, tensor
            continue
        if tensor.dtype != torch.uint8 or tensor.dim() < 3:
            raise ValueError(f"tensor {name!r} of a weight in MXFP4 is {tensor.dtype} {list(tensor.shape)}")
        halves[name] = _numbers(tensor) if name.endswith(_BLOCKS) else _powers_of_two(tensor)
        whole = name.removesuffix(_BLOCKS).removesuffix(_SCALES)
        if halves.keys() >= {whole + _BLOCKS, whole + _SCALES}:
            yield whole, _scaled(whole, halves.pop(whole + _BLOCKS), halves.pop(whole + _SCALES))
    if halves:
        raise ValueError(f"tensor {min(halves)!r} of a weight in MXFP4 has no other half")


def _numbers(blocks: torch.Tensor) -> torch.Tensor:
    """[E, ..., 16] bytes -> [E, ..., 32] bfloat16, without their powers of two; of one expert after the other."""
    out = torch.empty(*blocks.shape, dtype=torch.int32)
    for into, part in zip(out, blocks, strict=True):
        torch.index_select(_PAIRS, 0, part.flatten().int(), out=into.view(-1))
    return out.view(torch.bfloat16)


def _powers_of_two(exponents: torch.Tensor) -> torch.Tensor:
    """2 ** (exponents - 127) as bfloat16, whose bits these are; only 2 ** -127 has another form."""
    bits = (exponents.short() << 7).masked_fill_(exponents == 0, 1 << 6)
    return bits.view(torch.bfloat16)


def _scaled(name: str, numbers: torch.Tensor, powers: torch.Tensor) -> torch.Tensor:
    """numbers [E, N, K / 32, 32], given up, and powers [E, N, K / 32] -> [E, K, N]."""
    if powers.dim() != 3 or numbers.shape != (*powers.shape, 32):
        raise ValueError(f"tensor {name!r} in MXFP4: there are scales {list(powers.shape)} for {list(numbers.shape)}")
    return numbers.mul_(powers[..., None]).flatten(2).mT

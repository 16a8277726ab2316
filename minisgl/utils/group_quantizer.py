"""Floats to integers: of every GROUP neighbours in 8 bits with a scale, or in 4 bits with a scale and an offset.

`kernel.quantizer` has the same in C++, to the bit, so sums have an order here.
"""

from __future__ import annotations

import torch

from minisgl.utils.grouped_tensor import GROUP, GroupedTensor

_PIECE = 1 << 22  # numbers at a time
_LEAST = 2**-14  # of float16's numbers with all their digits
_SPANS = (1.0, 0.9)  # of the range from the least number of a group to the greatest that 16 codes cover, to try


def quantize(tensor: torch.Tensor, bits: int) -> GroupedTensor:
    """The nearest that there is to a matrix [N, K], or stack of them, of floats; K must be whole groups.

    8 bits: scale is the greatest magnitude / 127, and code 128 is 0. 4 bits: scale and offset of least squared error
    among a few. Both are numbers of float16, unless these are too small or too great for it. A group with a number
    that is not finite is NaN.
    """
    assert tensor.shape[-1] % GROUP == 0, tensor.shape
    rows = tensor.reshape(-1, tensor.shape[-1])
    groups = (len(rows), rows.shape[1] // GROUP)
    codes = torch.empty(rows.shape, dtype=torch.uint8)
    scale, offset = torch.empty(2, *groups)
    step = max(1, _PIECE // rows.shape[1])
    for begin in range(0, len(rows), step):
        part = slice(begin, begin + step)
        values = rows[part].float().view(-1, groups[1], GROUP)
        finite = values.isfinite().all(-1)
        found, scales, offsets = (_in_8_bits if bits == 8 else _in_4_bits)(values)
        codes[part] = torch.where(finite[..., None], found, 0).flatten(1).byte()
        scale[part], offset[part] = torch.where(finite, scales, 0), torch.where(finite, offsets, torch.nan)
    shape = tensor.shape[:-1]
    return GroupedTensor(codes.view(tensor.shape), scale.view(*shape, groups[1]), offset.view(*shape, groups[1]), bits)


def _in_8_bits(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    scale = _short(values.abs().amax(-1) / 127)
    return _codes_of(values, scale, torch.zeros_like(scale), -127, 127) + 128, scale, -128 * scale


def _in_4_bits(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    least, greatest = values.aminmax(dim=-1)
    middle, width = (least + greatest) / 2, (greatest - least) / 15
    errors, *best = _fitted(values, middle, width)
    for span in _SPANS[1:]:
        others, *fitted = _fitted(values, middle, width * span)
        better = others < errors
        errors[better] = others[better]
        for into, x in zip(best, fitted, strict=True):
            into[better] = x[better]
    codes, scale, offset = best
    return codes, scale, offset


def _fitted(
    values: torch.Tensor, middle: torch.Tensor, width: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Squared errors, codes, scale and offset: codes by the steps of `width` around `middle`, then the line through
    what they stand for, then codes again."""
    codes = _codes_of(values, width, middle - 7.5 * width, 0, 15)
    centre, mean = _folded(codes) / GROUP, _folded(values) / GROUP
    spread = codes - centre[..., None]
    variance = _folded(spread * spread)
    scale = _short(torch.where(variance > 0, _folded(spread * values) / variance, 0))
    offset = _short(mean - scale * centre)
    codes = _codes_of(values, scale, offset, 0, 15)
    off = codes * scale[..., None] + offset[..., None] - values
    return _folded(off * off), codes, scale, offset


def _codes_of(values: torch.Tensor, scale: torch.Tensor, offset: torch.Tensor, least: int, most: int) -> torch.Tensor:
    """Nearest to (values - offset) / scale; 0 where nothing can be divided by that."""
    inverse = (1 / scale)[..., None]
    codes = ((values - offset[..., None]) * inverse).clamp_(least, most).round_()
    return torch.where(inverse.isfinite() & (inverse != 0), codes, 0)


def _folded(values: torch.Tensor) -> torch.Tensor:
    """The sum of the last dimension: the first half added to the second, again and again."""
    while (half := values.shape[-1] // 2) > 0:
        values = values[..., :half] + values[..., half:]
    return values[..., 0]


def _short(x: torch.Tensor) -> torch.Tensor:
    """To float16 and back, unless digits would be lost that all others keep."""
    magnitude = x.abs()
    fits = (magnitude >= _LEAST) & (magnitude <= torch.finfo(torch.float16).max)
    return torch.where(fits, x.half().float(), x)

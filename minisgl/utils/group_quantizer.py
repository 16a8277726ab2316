"""Floats to integers: of every GROUP neighbours in 8 bits with a scale, or in 4 bits with a scale and an offset."""

from __future__ import annotations

import torch

from minisgl.utils.grouped_tensor import GROUP, GroupedTensor

_PIECE = 1 << 22  # numbers at a time
_LEAST = 2**-14  # of float16's numbers with all their digits
_SPANS = (1.0, 0.9)  # of the range from the least number of a group to the greatest that 16 codes cover, to try


def quantize(tensor: torch.Tensor, bits: int) -> GroupedTensor:
    """The nearest that there is to a matrix [N, K], or stack of them, of floats; K must be whole groups.

    8 bits: scale is the greatest magnitude / 127, and code 128 is 0. 4 bits: scale and offset of least squared error
    among a few. Both are numbers of float16, unless these are too small or too great for it.
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
        found, scale[part], offset[part] = (_in_8_bits if bits == 8 else _in_4_bits)(values)
        codes[part] = found.flatten(1).byte()
    shape = tensor.shape[:-1]
    return GroupedTensor(codes.view(tensor.shape), scale.view(*shape, groups[1]), offset.view(*shape, groups[1]), bits)


def _in_8_bits(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    scale = _short(values.abs().amax(-1) / 127)
    codes = _divided(values, scale).round_().clamp_(-127, 127).add_(128)
    return codes, scale, -128 * scale


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
    codes = _codes_of(values, width, middle - 7.5 * width)
    centre, mean = codes.mean(-1), values.mean(-1)
    spread = codes - centre[..., None]
    variance = spread.square().sum(-1)
    slope = torch.where(variance > 0, (spread * values).sum(-1) / variance, 0)
    scale = _short(slope)
    offset = _short(mean - scale * centre)
    codes = _codes_of(values, scale, offset)
    errors = torch.addcmul(offset[..., None], codes, scale[..., None]).sub_(values).square_().sum(-1)
    return errors, codes, scale, offset


def _codes_of(values: torch.Tensor, scale: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
    return _divided(values - offset[..., None], scale).round_().clamp_(0, 15)


def _divided(values: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """0 where the scale is."""
    return values * torch.where(scale != 0, 1 / scale, 0)[..., None]


def _short(x: torch.Tensor) -> torch.Tensor:
    """To float16 and back, unless digits would be lost that all others keep."""
    magnitude = x.abs()
    fits = (x == 0) | (magnitude >= _LEAST) & (magnitude <= torch.finfo(torch.float16).max)
    return torch.where(fits, x.half().float(), x)

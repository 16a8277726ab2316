"""GGUF's quantised blocks as grouped tensors, whose values are those that `gguf.quants` gives, to the last bit.

Only where a damaged file's scale is infinite do they differ: some infinities are NaN then.

Layouts: https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from minisgl.utils.grouped_tensor import GROUP, GroupedTensor
from minisgl.utils.mxfp4 import CODES, SCALES, ZERO

_LOWER = np.uint64(0x0F0F0F0F0F0F0F0F)  # the lower half of each of 8 bytes
Bytes = npt.NDArray[np.uint8]  # [B, bytes of a block] or a part of every block
Codes = npt.NDArray[np.integer[Any]]  # uint8; the type of what an operator gives is not known so well
Floats = npt.NDArray[np.float32]


class _Groups(NamedTuple):
    """Of B blocks: codes [B, G, GROUP], scale and offset [B, G], G groups a block."""

    codes: Codes
    scale: Floats
    offset: Floats


class _Format(NamedTuple):
    """block_bytes: of which `read` takes the blocks apart."""

    bits: int
    block_bytes: int
    read: Callable[[Bytes], _Groups]


def grouped(raw: Bytes, kind: str, shape: tuple[int, ...]) -> GroupedTensor | None:
    """The matrix of `shape`, or stack of matrices, whose blocks of ggml's type `kind` are in `raw`.

    None for types that have no such form.
    """
    if kind not in _FORMATS or len(shape) not in (2, 3):
        return None
    bits, block_bytes, read = _FORMATS[kind]
    codes, scale, offset = read(raw.reshape(-1, block_bytes))
    groups = (*shape[:-1], shape[-1] // GROUP)
    scale, offset = (x.reshape(groups) for x in (scale, offset))
    return GroupedTensor(
        torch.from_numpy(codes.reshape(shape)), torch.from_numpy(scale), torch.from_numpy(offset), bits
    )


def _q4_0(blocks: Bytes) -> _Groups:
    scale = _halves(blocks[:, :2])
    return _Groups(_nibbles(blocks[:, 2:]), scale, -8 * scale)


def _q4_1(blocks: Bytes) -> _Groups:
    return _Groups(_nibbles(blocks[:, 4:]), _halves(blocks[:, :2]), _halves(blocks[:, 2:4]))


def _q5_0(blocks: Bytes) -> _Groups:
    scale = _halves(blocks[:, :2])
    return _Groups(_nibbles(blocks[:, 6:]) | _fifth_bits(blocks[:, 2:6]), scale, -16 * scale)


def _q5_1(blocks: Bytes) -> _Groups:
    codes = _nibbles(blocks[:, 8:]) | _fifth_bits(blocks[:, 4:8])
    return _Groups(codes, _halves(blocks[:, :2]), _halves(blocks[:, 2:4]))


def _q8_0(blocks: Bytes) -> _Groups:
    scale = _halves(blocks[:, :2])
    return _Groups(blocks[:, None, 2:] ^ 0x80, scale, -128 * scale)  # two's complement becomes a count from -128


def _q4_k(blocks: Bytes) -> _Groups:
    return _Groups(_nibbles(blocks[:, 16:]), *_scales_of_k(blocks))


def _q5_k(blocks: Bytes) -> _Groups:
    fifths = blocks[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None] & 1  # bit g of every byte is for group g
    return _Groups(_nibbles(blocks[:, 48:]) | fifths << 4, *_scales_of_k(blocks))


def _mxfp4(blocks: Bytes) -> _Groups:
    scale = SCALES[blocks[:, :1]]
    return _Groups(CODES[_nibbles(blocks[:, 1:])], scale, -ZERO * scale)


def _halves(pairs: Bytes) -> Floats:
    """[B, 2n] bytes -> [B, n] numbers in float16."""
    return pairs.view("<f2").astype(np.float32)


def _nibbles(packed: Bytes) -> Codes:
    """The lower halves of GROUP / 2 or, in larger blocks, GROUP bytes are followed by their upper halves."""
    run = min(packed.shape[1], GROUP) // 8
    words = np.ascontiguousarray(packed).view(np.uint64).reshape(-1, run)
    halves = np.empty((len(words), 2, run), np.uint64)
    for i in range(run):  # NumPy takes its time for every short row, and none for long columns
        np.bitwise_and(words[:, i], _LOWER, out=halves[:, 0, i])
        np.bitwise_and(words[:, i] >> 4, _LOWER, out=halves[:, 1, i])
    return halves.view(np.uint8).reshape(len(packed), -1, GROUP)


def _fifth_bits(packed: Bytes) -> Codes:
    """[B, 4] bytes, a bit for each code -> [B, 1, GROUP], 16 or 0."""
    return np.unpackbits(packed, axis=1, bitorder="little")[:, None] << 4


def _scales_of_k(blocks: Bytes) -> tuple[Floats, Floats]:
    """Scale and offset of the 8 groups: two numbers in float16 times 8 + 8 integers of 6 bits, in 12 bytes."""
    low, middle, high = np.split(blocks[:, 4:16], 3, axis=1)
    scales = np.concatenate([low & 63, high & 15 | low >> 6 << 4], axis=1)
    offsets = np.concatenate([middle & 63, high >> 4 | middle >> 6 << 4], axis=1)
    return _halves(blocks[:, :2]) * scales, -(_halves(blocks[:, 2:4]) * offsets)


_FORMATS = {
    "Q4_0": _Format(4, 18, _q4_0),
    "Q4_1": _Format(4, 20, _q4_1),
    "Q5_0": _Format(8, 22, _q5_0),
    "Q5_1": _Format(8, 24, _q5_1),
    "Q8_0": _Format(8, 34, _q8_0),
    "Q4_K": _Format(4, 144, _q4_k),
    "Q5_K": _Format(8, 176, _q5_k),
    "MXFP4": _Format(8, 17, _mxfp4),
}

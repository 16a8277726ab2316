"""Quantised blocks as grouped tensors: the values of the `gguf` package to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from minisgl.utils.gguf_blocks import grouped

TYPES = {"Q4_0": 4, "Q4_1": 4, "Q5_0": 8, "Q5_1": 8, "Q8_0": 8, "Q4_K": 4, "Q5_K": 8, "MXFP4": 8}
ROWS, BLOCKS = 6, 3


def random_blocks(kind: str) -> np.ndarray:
    """[ROWS, bytes]: anything but infinite or NaN scales."""
    block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[kind]][1]
    blocks = np.random.default_rng(0).integers(0, 256, (ROWS * BLOCKS, block_bytes), np.uint8)
    if kind == "MXFP4":
        blocks[:, 0] %= 252  # where twice a number is not infinite
        return blocks.reshape(ROWS, -1)
    blocks[:, [1, 3]] &= 0xBF  # the upper bytes of one or two numbers in float16: no exponent of all ones
    return blocks.reshape(ROWS, -1)


@pytest.mark.parametrize("kind", TYPES)
def test_values_are_those_of_the_gguf_package(kind: str):
    raw = random_blocks(kind)
    expected = torch.from_numpy(dequantize(raw, GGMLQuantizationType[kind]))
    tensor = grouped(raw.reshape(-1), kind, tuple(expected.shape))
    assert tensor is not None
    assert tensor.shape == expected.shape
    assert tensor.bits == TYPES[kind]
    assert int(tensor.codes.max()) < 2**tensor.bits
    assert torch.equal(tensor.dequantize(), expected)


def test_types_with_smaller_groups_and_what_is_no_matrix_stay_floats():
    assert grouped(np.zeros(210, np.uint8), "Q6_K", (1, 256)) is None
    assert grouped(np.zeros(34, np.uint8), "Q8_0", (32,)) is None

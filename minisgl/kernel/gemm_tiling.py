"""Where the GEMM of decode batches takes less time than cuBLAS, and how it goes over the weights there."""

from __future__ import annotations

from typing import NamedTuple


class GemmTiling(NamedTuple):
    """A program computes block_n features of block_m rows, over 1 / split of K, block_k at a time.

    stages: blocks whose loads are under way. ahead: elements of a feature that are asked for before the last kernel has
    ended, 0 or a power of two from 256, and no more than there are.
    """

    block_m: int
    block_n: int
    block_k: int
    split: int
    stages: int
    num_warps: int
    ahead: int


# By the weight's [N, K]: up to so many rows, this tiling, or None where cuBLAS takes less time; with more rows it does
# too, as with other weights. Measured on an H200 with all that Qwen3-0.6B, 8B and 14B have.
TILINGS: dict[tuple[int, int], tuple[tuple[int, GemmTiling | None], ...]] = {}


def gemm_tiling(rows: int, features: int, size: int) -> GemmTiling | None:
    """How to multiply x [rows, size] by weight [features, size]; None: by cuBLAS."""
    for most, tiling in TILINGS.get((features, size), ()):
        if rows <= most:
            return tiling
    return None

"""Where the GEMM of decode batches takes less time than cuBLAS, and how it goes over the weights there.

A rule, fitted to what an H200 took for the weights of Qwen3-0.6B, 8B and 14B; its test holds it against those times.
"""

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


FEATURES = 64  # of a tile
BLOCK_K = 128
MIN_SIZE = 1024  # of N and K: the least that was measured
SMALL = 8 << 20  # elements of a weight. Below, to start and to end is most of the time, and cuBLAS is slow at that
LARGE = 40 << 20  # above, cuBLAS stays some 10 % behind memory's speed with few rows
PROCESSORS = 132
MIN_PROGRAMS = 64  # with fewer, they share K


def gemm_tiling(rows: int, features: int, size: int) -> GemmTiling | None:
    """How to multiply x [rows, size] by weight [features, size]; None: by cuBLAS."""
    if size % BLOCK_K != 0 or min(features, size) < MIN_SIZE:
        return None
    tiles = -(-features // FEATURES)
    if features * size <= SMALL:
        return _for_small(rows, tiles, size)
    return _for_large(rows, tiles, size, is_large=features * size > LARGE)


def _for_small(rows: int, tiles: int, size: int) -> GemmTiling | None:
    """One program a processor, with as many loads under way as it can have."""
    if rows > (128 if tiles * FEATURES <= MIN_SIZE else 64):
        return None
    block_m = 16 if rows <= 16 else 32 if rows <= 32 or 64 < rows <= 96 else 64
    split = _split(tiles * -(-rows // block_m), size, room=PROCESSORS)
    return GemmTiling(block_m, FEATURES, BLOCK_K, split, stages=6, num_warps=4, ahead=256)


def _for_large(rows: int, tiles: int, size: int, is_large: bool) -> GemmTiling | None:
    """Two programs a processor, where all run at once and leave none idle; three of smaller blocks where many wait.

    Nothing is asked for ahead: memory is busy without it.
    """
    room = 2 * PROCESSORS
    split = _split(tiles, size, room)
    is_full = 0.9 * room <= tiles * split <= room
    if rows > (32 if is_full else 16 if is_large else 0):
        return None
    block_m = 16 if rows <= 16 else 32
    block_k, stages = (BLOCK_K, 4) if tiles <= room else (BLOCK_K // 2, 6)
    return GemmTiling(block_m, FEATURES, block_k, split, stages, num_warps=4, ahead=0)


def _split(tiles: int, size: int, room: int) -> int:
    """How many programs share the K of a tile: more where few run or each has much to do, while there is room for all.

    To share costs little where a program keeps 512 of K.
    """
    split = 1
    while tiles * split < MIN_PROGRAMS or size // split > 1024:
        fits = 2 * split * tiles <= room and size % (2 * split * BLOCK_K) == 0 and size // (2 * split) >= 512
        if not fits:
            break
        split *= 2
    return split

"""The rule for tilings, held against what an H200 took: it picks cuBLAS or a tiling that was near the best."""

from __future__ import annotations

from itertools import product

import pytest

from minisgl.kernel.gemm_tiling import GemmTiling, gemm_tiling

SHARED_MEMORY = 227 << 10  # bytes that a program may have, on a Hopper

# Microseconds by the weight's [N, K] (Qwen3-0.6B, 8B, 14B; gate and up with `silu_and_mul`) and by rows: cuBLAS, our
# best tiling, and ours near the best of both, as (block_m, block_k, split, stages) with block_n 64 and 4 warps. Medians
# of 5 graphs of one layer after another, as many weights as no cache holds: H200, torch 2.11, CUDA 13.0, Triton 3.6.
Times = tuple[float, float, dict[tuple[int, int, int, int], float]]
MEASURED: dict[tuple[int, int], dict[int, Times]] = {
    (4096, 1024): {
        8: (5.11, 4.00, {(16, 128, 1, 6): 4.00}),
        16: (5.15, 4.05, {(16, 128, 1, 6): 4.05}),
        32: (5.22, 4.28, {(32, 128, 1, 6): 4.28}),
        64: (5.30, 4.81, {(64, 128, 1, 6): 4.81}),
        96: (5.44, 5.99, {}),
        128: (5.49, 5.65, {(64, 128, 1, 6): 5.65}),
        192: (5.96, 7.10, {}),
        256: (6.57, 8.00, {}),
    },
    (1024, 2048): {
        8: (6.25, 3.88, {(16, 256, 4, 3): 3.88, (16, 128, 4, 6): 3.93}),
        16: (5.81, 3.97, {(16, 128, 4, 6): 3.97, (16, 256, 4, 3): 4.00}),
        32: (5.81, 4.49, {(32, 128, 4, 6): 4.49}),
        64: (5.67, 5.56, {(64, 128, 4, 6): 5.56}),
        96: (5.98, 5.48, {(32, 128, 2, 6): 5.48}),
        128: (5.98, 6.19, {(64, 128, 2, 6): 6.19, (64, 128, 4, 6): 6.24}),
        192: (6.30, 6.72, {}),
        256: (6.32, 7.10, {}),
    },
    (6144, 1024): {
        8: (7.02, 5.41, {(16, 128, 1, 6): 5.41, (16, 256, 1, 3): 5.45}),
        16: (7.30, 5.34, {(16, 128, 1, 6): 5.34, (16, 256, 1, 3): 5.45}),
        32: (7.35, 5.74, {(32, 128, 1, 6): 5.74, (32, 128, 1, 4): 6.00}),
        64: (7.62, 6.36, {(64, 128, 1, 6): 6.36}),
        96: (7.74, 8.34, {}),
        128: (7.94, 7.73, {(64, 128, 1, 3): 7.73}),
        192: (8.89, 9.17, {(64, 64, 1, 4): 9.17}),
        256: (9.65, 11.13, {}),
    },
    (1024, 3072): {
        8: (7.01, 4.43, {(16, 128, 4, 6): 4.43}),
        16: (7.28, 4.45, {(16, 128, 4, 6): 4.45}),
        32: (7.28, 4.86, {(32, 128, 4, 6): 4.86}),
        64: (7.54, 6.11, {(64, 128, 4, 6): 6.11}),
        96: (7.71, 6.21, {(32, 128, 2, 6): 6.21}),
        128: (7.81, 7.01, {(64, 128, 4, 6): 7.01}),
        192: (7.75, 8.62, {}),
        256: (7.88, 9.03, {}),
    },
    (6144, 4096): {
        8: (15.66, 15.87, {(16, 256, 1, 3): 15.87, (16, 64, 4, 6): 16.14}),
        16: (15.38, 15.99, {(16, 256, 1, 3): 15.99}),
        32: (15.74, 17.01, {}),
        64: (16.02, 18.42, {}),
        96: (16.41, 24.71, {}),
        128: (16.81, 23.98, {}),
        192: (21.93, 32.44, {}),
        256: (21.05, 36.76, {}),
    },
    (4096, 4096): {
        8: (12.69, 10.66, {(16, 256, 2, 3): 10.66, (16, 128, 4, 4): 10.86}),
        16: (12.93, 10.72, {(16, 256, 2, 3): 10.72, (16, 128, 4, 4): 10.81}),
        32: (13.25, 11.63, {(32, 128, 4, 4): 11.63}),
        64: (12.10, 13.58, {}),
        96: (14.95, 17.31, {}),
        128: (13.95, 16.25, {}),
        192: (16.68, 23.01, {}),
        256: (18.10, 24.56, {}),
    },
    (24576, 4096): {
        8: (59.02, 51.25, {(16, 64, 1, 6): 51.25, (16, 256, 1, 3): 53.76}),
        16: (52.43, 51.50, {(16, 64, 1, 6): 51.50, (16, 256, 1, 3): 53.86}),
        32: (52.99, 52.02, {(32, 64, 1, 6): 52.02}),
        64: (54.72, 54.61, {(64, 64, 1, 4): 54.61}),
        96: (57.46, 65.04, {}),
        128: (58.96, 65.70, {}),
        192: (64.00, 108.27, {}),
        256: (77.55, 101.41, {}),
    },
    (4096, 12288): {
        8: (29.18, 27.22, {(16, 256, 2, 3): 27.22, (16, 128, 4, 4): 27.44}),
        16: (28.74, 27.30, {(16, 256, 2, 3): 27.30, (16, 128, 4, 4): 27.49}),
        32: (29.78, 28.98, {(32, 128, 4, 4): 28.98, (32, 128, 2, 4): 29.97}),
        64: (32.29, 31.55, {(64, 128, 4, 3): 31.55}),
        96: (33.82, 37.02, {}),
        128: (33.23, 37.38, {}),
        192: (49.30, 55.27, {}),
        256: (43.30, 56.66, {}),
    },
    (7168, 5120): {
        16: (21.03, 20.31, {(16, 256, 1, 3): 20.31}),
        64: (21.16, 24.82, {}),
        128: (23.01, 30.55, {}),
        256: (28.10, 45.64, {}),
    },
    (5120, 5120): {
        16: (15.75, 17.75, {}),
        64: (15.89, 20.14, {}),
        128: (17.40, 26.59, {}),
        256: (23.43, 43.87, {}),
    },
    (34816, 5120): {
        16: (100.58, 90.56, {(16, 128, 1, 4): 90.56, (16, 64, 1, 6): 93.87}),
        64: (97.31, 102.45, {}),
        128: (101.58, 133.41, {}),
        256: (129.55, 195.15, {}),
    },
    (5120, 17408): {
        16: (51.39, 47.06, {(16, 128, 2, 4): 47.06, (16, 64, 2, 6): 48.13}),
        64: (51.97, 55.28, {}),
        128: (56.86, 74.43, {}),
        256: (73.18, 130.88, {}),
    },
    (151936, 1024): {
        16: (88.62, 78.16, {(16, 128, 1, 4): 78.16, (16, 64, 1, 6): 80.85}),
        64: (86.72, 86.48, {(64, 128, 1, 3): 86.48, (64, 64, 1, 4): 87.50}),
        256: (118.19, 160.19, {}),
    },
    (151936, 4096): {
        16: (334.69, 286.93, {(16, 64, 1, 6): 286.93}),
        64: (303.92, 306.75, {(64, 64, 1, 4): 308.99, (64, 128, 1, 3): 312.77}),
        256: (425.66, 566.75, {}),
    },
}
POINTS = [(features, size, rows) for (features, size), by_rows in MEASURED.items() for rows in by_rows]


def time_of(features: int, size: int, rows: int) -> float:
    """Microseconds that the rule's choice took. KeyError: it was not near the best."""
    cublas, _, tilings = MEASURED[features, size][rows]
    tiling = gemm_tiling(rows, features, size)
    if tiling is None:
        return cublas
    assert (tiling.block_n, tiling.num_warps) == (64, 4)
    return tilings[tiling.block_m, tiling.block_k, tiling.split, tiling.stages]


@pytest.mark.parametrize(("features", "size", "rows"), POINTS)
def test_the_rule_loses_no_more_than_a_twentieth_to_the_best(features: int, size: int, rows: int):
    cublas, ours, _ = MEASURED[features, size][rows]
    assert time_of(features, size, rows) <= 1.05 * min(cublas, ours)


def test_the_rule_wins_over_cublas_in_sum_and_nearly_all_that_can_be_won():
    """In shares of cuBLAS's time, so that small weights count as much as large ones."""
    times = [(MEASURED[features, size][rows], time_of(features, size, rows)) for features, size, rows in POINTS]
    chosen = sum(taken / cublas for (cublas, _, _), taken in times)
    assert chosen < 0.95 * len(times)
    assert chosen < 1.01 * sum(min(cublas, ours) / cublas for (cublas, ours, _), _ in times)


def test_every_tiling_fits_its_weight_and_a_gpu():
    all_features = (1024, 1100, 2048, 3072, 4096, 6144, 14336, 16384, 28672, 128256)
    sizes = (1024, 1536, 2048, 2560, 3584, 4096, 8192, 14336)
    found = 0
    for rows, features, size in product((1, 16, 17, 33, 65, 97, 128), all_features, sizes):
        tiling = gemm_tiling(rows, features, size)
        if tiling is None:
            continue
        found += 1
        assert size % (tiling.split * tiling.block_k) == 0, (rows, features, size)
        assert tiling.ahead * tiling.split <= size, (rows, features, size)
        assert 2 * (tiling.block_m + tiling.block_n) * tiling.block_k * tiling.stages <= SHARED_MEMORY
    assert found > 100


@pytest.mark.parametrize(("features", "size"), [(4096, 1000), (4096, 576), (4096, 512), (512, 4096), (4096, 1024 + 64)])
def test_sizes_beyond_what_was_measured_are_left_to_cublas(features: int, size: int):
    assert [gemm_tiling(rows, features, size) for rows in (1, 8, 64)] == [None, None, None]


def test_few_programs_share_k_and_a_lone_tile_s_rows_fit_it():
    assert gemm_tiling(8, 1024, 2048) == GemmTiling(16, 64, 128, split=4, stages=6, num_warps=4, ahead=256)
    assert gemm_tiling(64, 4096, 1024) == GemmTiling(64, 64, 128, split=1, stages=6, num_warps=4, ahead=256)
    assert gemm_tiling(20, 4096, 4096) == GemmTiling(32, 64, 128, split=4, stages=4, num_warps=4, ahead=0)


def test_many_rows_are_left_to_cublas():
    assert all(gemm_tiling(129, features, size) is None for features, size in MEASURED)

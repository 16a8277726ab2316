"""The table of tilings: what stands in it fits the weights and a GPU, and the first entry with enough rows counts."""

from __future__ import annotations

import pytest

from minisgl.kernel import gemm_tiling as module
from minisgl.kernel.gemm_tiling import TILINGS, GemmTiling, gemm_tiling

SHARED_MEMORY = 227 << 10  # bytes that a program may have, on a Hopper
SMALL = GemmTiling(block_m=16, block_n=64, block_k=128, split=2, stages=4, num_warps=4, ahead=512)
LARGE = SMALL._replace(block_m=64)


def test_the_first_entry_with_enough_rows_counts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "TILINGS", {(96, 256): ((16, SMALL), (32, None), (64, LARGE))})
    found = [gemm_tiling(rows, 96, 256) for rows in (1, 16, 17, 32, 33, 64, 65)]
    assert found == [SMALL, SMALL, None, None, LARGE, LARGE, None]
    assert gemm_tiling(1, 256, 96) is None


def test_every_tiling_fits_its_weight_and_a_gpu():
    for (features, size), entries in TILINGS.items():
        rows = [most for most, _ in entries]
        assert rows == sorted(set(rows)), (features, size)
        for most, tiling in entries:
            if tiling is None:
                continue
            assert size % (tiling.split * tiling.block_k) == 0, (features, size, most)
            assert tiling.ahead in {0, 256, 512, 1024, 2048}, (features, size, most)
            assert tiling.ahead * tiling.split <= size, (features, size, most)
            elements = (tiling.block_m + tiling.block_n) * tiling.block_k * tiling.stages
            assert 2 * elements <= SHARED_MEMORY, (features, size, most)

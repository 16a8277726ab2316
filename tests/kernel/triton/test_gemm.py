"""The GEMM of decode batches, with what it does on the way, against float32."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from minisgl.kernel.gemm_tiling import GemmTiling
from minisgl.kernel.linear import GATES
from minisgl.kernel.triton import gemm as module
from minisgl.kernel.triton.gemm import gemm

ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if ON_GPU else "cpu")
DTYPE = torch.bfloat16 if ON_GPU else torch.float16  # the interpreter multiplies no matrices of bfloat16


def tiling(block_m: int = 16, block_n: int = 64, block_k: int = 64, split: int = 1) -> GemmTiling:
    return GemmTiling(block_m, block_n, block_k, split, stages=3, num_warps=4, ahead=256)


TILINGS = pytest.mark.parametrize(
    "tiles", [tiling(), tiling(split=2), pytest.param(tiling(64, 128, split=2), marks=pytest.mark.gpu)]
)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    """Products of two of them have a spread of 1, whatever their size is."""
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return (numbers * shape[-1] ** -0.25).to(DEVICE, DTYPE)


def assert_close(got: torch.Tensor, expected: torch.Tensor) -> None:
    """Products of two bytes each are exact in float32; their sum is rounded once."""
    assert got.dtype == DTYPE
    torch.testing.assert_close(got.float(), expected, rtol=2**-6, atol=2**-7 * float(expected.std()))


@TILINGS
@pytest.mark.parametrize(
    ("rows", "features", "size"),
    [
        (1, 64, 512),
        (16, 100, 512),
        (21, 70, 640),
        pytest.param(8, 4096, 1024, marks=pytest.mark.gpu),
        pytest.param(48, 1024, 3072, marks=pytest.mark.gpu),
        pytest.param(200, 4096, 12288, marks=pytest.mark.gpu),
        pytest.param(64, 151936, 1024, marks=pytest.mark.gpu),
    ],
)
def test_a_plain_layer(rows: int, features: int, size: int, tiles: GemmTiling):
    if tiles.split > 1 and features > 100_000:
        pytest.skip("more tiles than are counted")
    x, weight = random(rows, size), random(features, size, seed=1)
    assert_close(gemm(x, weight, None, None, tiles), F.linear(x.float(), weight.float()))


@TILINGS
def test_bias(tiles: GemmTiling):
    x, weight, bias = random(5, 512), random(70, 512, seed=1), random(70, seed=2)
    assert_close(gemm(x, weight, bias, None, tiles), F.linear(x.float(), weight.float(), bias.float()))


@TILINGS
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize(("features", "size"), [(140, 512), pytest.param(24576, 4096, marks=pytest.mark.gpu)])
@pytest.mark.filterwarnings("ignore:overflow")  # as it should, far below 0
def test_a_gate(features: int, size: int, has_bias: bool, gate: str, tiles: GemmTiling):
    x, weight = random(18, size), random(features, size, seed=1)
    bias = random(features, seed=2) if has_bias else None
    expected = F.linear(x.float(), weight.float(), None if bias is None else bias.float())
    assert_close(gemm(x, weight, bias, gate, tiles), GATES[gate](expected))


@pytest.mark.parametrize("gate", [None, *GATES])
@pytest.mark.filterwarnings("ignore:overflow")  # as it should, far below 0
def test_programs_that_share_a_tile_add_up_in_one_order(gate: str | None):
    """Rows that stand elsewhere, among others, come out the same to the bit; and nobody is counted afterwards."""
    tiles = tiling(block_k=128, split=4)
    x, weight = random(16, 1024), random(128, 1024, seed=1)
    first = gemm(x, weight, None, gate, tiles)
    for _ in range(20 if ON_GPU else 1):
        assert torch.equal(gemm(x.flip(0), weight, None, gate, tiles).flip(0), first)
        assert torch.equal(gemm(x[:3].contiguous(), weight, None, gate, tiles), first[:3])
    assert not module._arrivals(weight).any()


def test_weights_count_for_themselves_while_they_live():
    """Engines side by side do not count each other's programs."""
    x, weights = random(4, 512), [random(64, 512, seed=i) for i in range(2)]
    before = len(module._ARRIVALS)
    for weight in [*weights, *weights]:
        gemm(x, weight, None, None, tiling(split=2))
    assert len(module._ARRIVALS) == before + 2
    assert module._arrivals(weights[0]).data_ptr() != module._arrivals(weights[1]).data_ptr()
    del weight, weights
    assert len(module._ARRIVALS) == before


@pytest.mark.gpu
def test_a_first_call_is_not_captured(monkeypatch: pytest.MonkeyPatch):
    x, weight = random(4, 512), random(64, 512, seed=1)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(AssertionError, match="captured"):
        gemm(x, weight, None, None, tiling(split=2))
    gemm(x, weight, None, None, tiling())  # nobody is counted


def test_rows_apart_from_each_other_are_refused_with_their_strides():
    with pytest.raises(AssertionError, match=r"side by side: strides \(1024, 1\)"):
        gemm(random(4, 1024)[:, :512], random(64, 512), None, None, tiling())


def test_a_k_that_its_blocks_do_not_fill_is_refused():
    with pytest.raises(AssertionError, match="96"):
        gemm(random(4, 96), random(64, 96), None, None, tiling(block_k=32, split=2))

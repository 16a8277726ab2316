"""Linear layers: ranks' shares add up to the whole, packing changes nothing but the order of the weights."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from minisgl.distributed import SINGLE, TPInfo
from minisgl.layers import ColumnParallelLinear, Layer, Placement, RowParallelLinear

CPU = torch.device("cpu")
PARTS = {"q_proj": 12, "k_proj": 4, "v_proj": 4}


def place(tp: TPInfo, dtype: torch.dtype = torch.float32) -> Placement:
    return Placement(dtype, CPU, tp)


def load(layer: Layer, tensors: dict[str, torch.Tensor]) -> None:
    slots = layer.slots()
    assert slots.keys() == tensors.keys()
    for name, tensor in tensors.items():
        slots[name].load(name, tensor)


def random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("tp_size", [1, 2, 4])
def test_column_shares_side_by_side_are_the_whole(tp_size: int, bias: bool, packed: bool):
    x, tensors = random(5, 8), {f"{name}.weight": random(size, 8) for name, size in PARTS.items()}
    if bias:
        tensors |= {f"{name}.bias": random(size) for name, size in PARTS.items()}
    shares = []
    for rank in range(tp_size):
        layer = ColumnParallelLinear(8, PARTS, bias, place(TPInfo(rank, tp_size)))
        load(layer, tensors)
        if packed:
            layer.pack()
        shares.append(layer(x).split([size // tp_size for size in PARTS.values()], dim=-1))
    for i, name in enumerate(PARTS):
        whole = F.linear(x, tensors[f"{name}.weight"], tensors.get(f"{name}.bias"))
        torch.testing.assert_close(torch.cat([share[i] for share in shares], dim=-1), whole)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("tp_size", [1, 2, 4])
def test_row_shares_add_up_to_the_whole_with_the_bias_once(tp_size: int, packed: bool):
    x, tensors = random(5, 8), {"weight": random(6, 8), "bias": random(6)}
    total = torch.zeros(5, 6)
    for rank in range(tp_size):
        layer = RowParallelLinear(8, 6, True, place(TPInfo(rank, tp_size)))
        load(layer, tensors)
        if packed:
            layer.pack()
        total += layer.partial(x.chunk(tp_size, dim=-1)[rank])
    torch.testing.assert_close(total, F.linear(x, tensors["weight"], tensors["bias"]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_packing_frees_the_weight_where_there_is_a_kernel_and_gives_the_same_result(dtype: torch.dtype):
    layer = RowParallelLinear(64, 48, False, place(SINGLE, dtype))
    load(layer, {"weight": random(48, 64)})
    x = random(3, 64).to(dtype)
    before = layer(x)
    layer.pack()
    assert (layer.weight is None) == (layer.packed is not None)
    torch.testing.assert_close(layer(x), before)


def test_sizes_that_the_ranks_cannot_share_are_refused_with_the_numbers():
    with pytest.raises(ValueError, match="tp_size=3 does not divide k_proj=4"):
        ColumnParallelLinear(8, PARTS, False, place(TPInfo(0, 3)))
    with pytest.raises(ValueError, match="tp_size=3 does not divide in_features=8"):
        RowParallelLinear(8, 6, False, place(TPInfo(0, 3)))

"""Linear layers: ranks' shares add up to the whole, packing changes nothing but the order of the weights."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
import torch.nn.functional as F
from support.packed import is_grouped

from minisgl.distributed import SINGLE, TPInfo
from minisgl.kernel import has_cpp
from minisgl.kernel.cpu_linear import PackedLinear
from minisgl.layers import (
    ColumnParallelLinear,
    FusedColumnParallelLinear,
    Layer,
    Placement,
    RMSNorm,
    RowParallelLinear,
)
from minisgl.layers.packed import is_repacked
from minisgl.utils.grouped_tensor import GroupedTensor, dense

CPU = torch.device("cpu")
PARTS = {"q_proj": 12, "k_proj": 4, "v_proj": 4}


def place(tp: TPInfo, dtype: torch.dtype = torch.float32) -> Placement:
    return Placement(dtype, CPU, tp)


def load(layer: Layer, tensors: Mapping[str, torch.Tensor | GroupedTensor]) -> None:
    slots = layer.slots()
    assert slots.keys() == tensors.keys()
    for name, tensor in tensors.items():
        slots[name].load(name, tensor)


@pytest.fixture
def floats_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where there are no C++ kernels."""
    monkeypatch.setattr("minisgl.layers.packed.has_cpp", lambda weight: False)


@pytest.fixture(params=[False, True], ids=["plain", "packed"])
def packed(request: pytest.FixtureRequest) -> bool:
    """Whether weights are packed, or else as where there are no C++ kernels."""
    if not request.param:
        request.getfixturevalue("floats_stay")
    return bool(request.param)


def random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


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


@pytest.mark.parametrize("tp_size", [1, 2, 4])
def test_shares_of_a_fused_tensor_are_those_of_its_parts_in_the_order_that_is_wanted(tp_size: int, packed: bool):
    x, weight, order = random(5, 8), random(sum(PARTS.values()), 8), torch.arange(12).flip(0)
    q, k, v = F.linear(x, weight).split(list(PARTS.values()), dim=-1)
    shares = []
    for rank in range(tp_size):
        layer = FusedColumnParallelLinear(8, PARTS, place(TPInfo(rank, tp_size)), orders={"q_proj": order})
        load(layer, {"weight": weight})
        if packed:
            layer.pack()
        shares.append(layer(x).split([size // tp_size for size in PARTS.values()], dim=-1))
    for i, whole in enumerate((q[:, order], k, v)):
        torch.testing.assert_close(torch.cat([share[i] for share in shares], dim=-1), whole)


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
def test_packing_frees_the_weight_where_there_is_a_kernel_and_gives_the_same_result(dtype: torch.dtype, packed: bool):
    layer, weight, x = RowParallelLinear(64, 48, False, place(SINGLE, dtype)), random(48, 64), random(3, 64).to(dtype)
    load(layer, {"weight": weight})
    layer.pack()
    assert (layer.weight is None) == (layer.packed is not None)
    assert not (packed and has_cpp(x)) or isinstance(layer.packed, PackedLinear)
    torch.testing.assert_close(layer(x), F.linear(x, weight.to(dtype)))


def test_sizes_that_the_ranks_cannot_share_are_refused_with_the_numbers():
    with pytest.raises(ValueError, match="tensor_parallel_size=3 does not divide k_proj=4"):
        ColumnParallelLinear(8, PARTS, False, place(TPInfo(0, 3)))
    with pytest.raises(ValueError, match="tensor_parallel_size=3 does not divide in_features=8"):
        RowParallelLinear(8, 6, False, place(TPInfo(0, 3)))


def grouped(rows: int, columns: int) -> GroupedTensor:
    generator = torch.Generator().manual_seed(rows)
    codes = torch.randint(0, 16, (rows, columns), dtype=torch.uint8, generator=generator)
    scale, offset = torch.randn(2, rows, columns // 32, generator=generator)
    return GroupedTensor(codes, scale, offset, bits=4)


@pytest.mark.skipif(not has_cpp(torch.empty(0)), reason="no C++ kernels here")
@pytest.mark.parametrize("tp_size", [1, 2])
def test_a_weight_that_comes_grouped_stays_so_and_gives_the_same_result(tp_size: int):
    tensors = {f"{name}.weight": grouped(size, 64) for name, size in PARTS.items()}
    x, ours, floats = random(5, 64), [], []
    for rank in range(tp_size):
        for results, given in ((ours, tensors), (floats, {name: t.dequantize() for name, t in tensors.items()})):
            layer = ColumnParallelLinear(64, PARTS, False, place(TPInfo(rank, tp_size)))
            load(layer, given)
            layer.pack()
            assert is_grouped(layer.packed) == (given is tensors)
            results.append(layer(x))
    torch.testing.assert_close(ours, floats)


@pytest.mark.skipif(not has_cpp(torch.empty(0)), reason="no C++ kernels here")
@pytest.mark.parametrize(("inputs", "stays_grouped"), [(128, True), (96, False)])
def test_a_share_of_the_inputs_becomes_floats_only_where_it_cuts_a_group(inputs: int, stays_grouped: bool):
    weight, x, half = grouped(12, inputs), random(5, inputs), inputs // 2
    shares = []
    for rank in range(2):
        layer = RowParallelLinear(inputs, 12, False, place(TPInfo(rank, 2)))
        load(layer, {"weight": weight})
        layer.pack()
        assert is_grouped(layer.packed) == stays_grouped
        shares.append(layer.partial(x[:, rank * half : (rank + 1) * half].contiguous()))
    torch.testing.assert_close(shares[0] + shares[1], F.linear(x, weight.dequantize()), rtol=1e-5, atol=1e-4)


@pytest.mark.skipif(not has_cpp(torch.empty(0)), reason="no C++ kernels here")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_part_in_floats_makes_the_whole_weight_floats(dtype: torch.dtype):
    tensors = {f"{name}.weight": grouped(size, 64) for name, size in PARTS.items()}
    tensors |= {"v_proj.weight": tensors["v_proj.weight"].dequantize()}
    layer = ColumnParallelLinear(64, PARTS, False, place(SINGLE, dtype))
    load(layer, tensors)
    layer.pack()
    assert not is_grouped(layer.packed)
    x = random(5, 64).to(dtype)
    expected = torch.cat([F.linear(x, dense(t).to(dtype)) for t in tensors.values()], dim=-1)
    torch.testing.assert_close(layer(x), expected)


NEEDS_PACKING = pytest.mark.skipif(
    not is_repacked(torch.empty(1, 1, dtype=torch.bfloat16)), reason="no prepacked matmul on this processor"
)


def joined_layers(number: int) -> tuple[list[ColumnParallelLinear], list[dict[str, torch.Tensor]]]:
    """In one place, and their tensors."""
    same = place(SINGLE, torch.bfloat16)
    layers = [ColumnParallelLinear(64, PARTS, False, same) for _ in range(number)]
    return layers, [{f"{name}.weight": random(size, 64) + i for name, size in PARTS.items()} for i in range(number)]


@NEEDS_PACKING
@pytest.mark.usefixtures("floats_stay")
def test_layers_that_are_packed_one_after_the_other_wait_in_the_same_memory():
    layers, tensors = joined_layers(3)
    addresses = set()
    for layer, given in zip(layers, tensors, strict=True):
        load(layer, given)
        assert layer.weight is not None
        addresses.add(layer.weight.data_ptr())
        layer.pack()
    assert len(addresses) == 1


@NEEDS_PACKING
def test_layers_whose_tensors_come_by_turns_do_not_disturb_each_other(packed: bool):
    layers, tensors = joined_layers(3)
    for name in tensors[0]:
        for layer, given in zip(layers, tensors, strict=True):
            layer.slots()[name].load(name, given[name])
    x = random(5, 64).bfloat16()
    for layer, given in zip(layers, tensors, strict=True):
        layer.pack()
        weight = torch.cat(list(given.values())).bfloat16()
        torch.testing.assert_close(layer(x), F.linear(x, weight), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("has_residual", [False, True])
def test_a_norm_before_and_a_gate_after_are_part_of_the_layer(has_residual: bool, packed: bool):
    x, residual = random(5, 8), random(5, 8) + 1 if has_residual else None
    tensors = {"gate_proj.weight": random(12, 8), "up_proj.weight": random(12, 8) + 1}
    layer = ColumnParallelLinear(8, {"gate_proj": 12, "up_proj": 12}, False, place(SINGLE), gate="silu")
    load(layer, tensors)
    if packed:
        layer.pack()
    norm = RMSNorm(8, 1e-5, place(SINGLE))
    norm.weight.copy_(random(8))
    total = x.clone() if residual is None else x + residual
    normed = F.rms_norm(total, (8,), norm.weight, 1e-5)
    gate, up = (F.linear(normed, weight) for weight in tensors.values())
    torch.testing.assert_close(layer.forward(normed), F.silu(gate) * up)
    out, new_residual = layer.after_norm(x, residual, norm)
    torch.testing.assert_close(out, F.silu(gate) * up)
    torch.testing.assert_close(new_residual, total)


@pytest.mark.parametrize("tp_size", [1, 2])
def test_a_fused_tensor_that_is_grouped_is_cut_as_its_values_are(tp_size: int):
    tensor, order = grouped(20, 64), torch.arange(12).flip(0)
    layer = FusedColumnParallelLinear(64, PARTS, place(TPInfo(tp_size - 1, tp_size)), orders={"q_proj": order})
    cut = layer.slots()["weight"].cut("weight", tensor)
    q, k, v = tensor.dequantize().split(list(PARTS.values()))
    assert isinstance(cut, GroupedTensor)
    assert torch.equal(cut.dequantize(), torch.cat([part.chunk(tp_size)[-1] for part in (q[order], k, v)]))

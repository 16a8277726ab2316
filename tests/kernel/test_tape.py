"""Tapes: what was recorded computes anew, from what lies where its inputs lay, whatever memory was used twice."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.needs import CPP_KERNELS

from minisgl import kernel
from minisgl.kernel import cpu_library
from minisgl.kernel.cpu_library import Function
from minisgl.kernel.tape import Arena, Tape, record

WEIGHT = torch.linspace(0.5, 1.5, 8)


def play_with(tape: Tape, x: torch.Tensor, values: torch.Tensor) -> Any:
    x.copy_(values)
    return tape.play()


def random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


COMPUTED: dict[str, Callable[[torch.Tensor], Any]] = {
    "new values": lambda x: x * 2 + 1,
    "a view": lambda x: (x + 1).view(2, 16)[1:],
    "a view of what lies in another order": lambda x: (x.t() * 2).t().view(32),
    "a reshape that copies": lambda x: (x + 1).t().reshape(4, 8),
    "in place": lambda x: (x + 1).mul_(3).clamp_min_(0),
    "in place in a part": lambda x: [whole := x + 1, whole[1].zero_()][0],
    "new memory": lambda x: x.new_empty(4, 8).copy_(x),
    "several results": lambda x: torch.max(x, dim=-1),
    "parts": lambda x: [part * 2 for part in x.split([1, 3])],
    "another dtype": lambda x: (x.bfloat16() * 3).float(),
    "a constant": lambda x: x + torch.tensor([1.0, 2, 3, 4, 5, 6, 7, 8]),
    "rows by numbers": lambda x: torch.nn.functional.embedding(torch.tensor([3, 1]), x + 1),
    "nothing but a view of what came": lambda x: x[1:3],
}


@pytest.mark.parametrize("name", COMPUTED)
def test_what_is_played_is_computed_from_what_lies_there_now(name: str):
    compute, x = COMPUTED[name], random(4, 8)
    tape = record(lambda: compute(x), Arena())
    assert tape.refused is None
    for factor in (-1.0, 2.5):
        values = random(4, 8) * factor
        torch.testing.assert_close(play_with(tape, x, values), compute(values.clone()), rtol=0, atol=0)


@CPP_KERNELS
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_calls_of_cpp_are_made_again(dtype: torch.dtype):
    def compute(x: torch.Tensor) -> torch.Tensor:
        normed = kernel.rms_norm(x, WEIGHT.to(dtype), 1e-5)
        return kernel.silu_and_mul(normed + 1) * kernel.gelu_tanh_and_mul(normed)

    x = random(4, 8).to(dtype)
    tape = record(lambda: compute(x), Arena())
    assert tape.refused is None
    values = random(4, 8).to(dtype) * -3
    assert torch.equal(play_with(tape, x, values), compute(values))


REFUSED: dict[str, Callable[[torch.Tensor], Any]] = {
    "a value on the host": lambda x: x if x.sum().item() > 0 else -x,
    "a comparison": lambda x: x if torch.equal(x, x) else -x,
    "as many rows as are positive": lambda x: x[x[:, 0] > 0],
    "positions": lambda x: x.nonzero(),
    "positions by dimension": lambda x: x.nonzero(as_tuple=True)[0],
    "where it is positive": lambda x: torch.where(x > 0)[0],
    "chance": lambda x: x + torch.rand_like(x),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_depends_on_values_or_chance_is_computed_once_and_refused(name: str):
    x = random(4, 8)
    torch.manual_seed(0)
    expected = REFUSED[name](x)
    torch.manual_seed(0)
    tape = record(lambda: REFUSED[name](x), Arena())
    assert torch.equal(tape.result, expected)
    assert tape.refused is not None


@CPP_KERNELS
def test_a_kernel_of_loading_is_refused():
    def pack() -> torch.Tensor:
        cpu_library.functions()["nanoseconds_taken", torch.uint8]()
        return WEIGHT + 1

    refused = record(pack, Arena()).refused
    assert refused is not None
    assert "nanoseconds_taken" in refused


@CPP_KERNELS
def test_calls_of_other_threads_are_not_recorded():
    x = random(4, 8)

    def compute() -> torch.Tensor:
        other = threading.Thread(target=cpu_library.functions()["nanoseconds_taken", torch.uint8])
        other.start()
        other.join()
        return x + 1

    assert record(compute, Arena()).refused is None


def test_nobody_listens_once_recording_has_failed():
    def fail() -> None:
        raise MemoryError("no room")

    with pytest.raises(MemoryError, match="no room"):
        record(fail, Arena())
    assert Function.listener is None


@CPP_KERNELS
def test_a_kernel_without_room_to_work_is_an_error():
    x = random(4, 8)
    tape = record(lambda: kernel.rms_norm(x, WEIGHT, 1e-5), Arena())
    tape._steps[0]._call = lambda address, count: count - 1  # type: ignore[attr-defined]
    with pytest.raises(MemoryError, match="call 0 of the 1"):
        tape.play()


def test_memory_is_used_again_and_other_tapes_use_the_same():
    arena, x = Arena(), random(64, 64)

    def compute() -> torch.Tensor:
        y = x
        for _ in range(50):
            y = y * 1.01
        return y

    tapes = [record(compute, arena) for _ in range(3)]
    assert len(arena._slabs) == 2
    assert torch.equal(tapes[0].play(), compute())


STEPS = st.lists(st.tuples(st.sampled_from("+*vicm"), st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(STEPS)
def test_any_program_plays_as_it_runs(steps: list[tuple[str, int, int]]):
    """Tensors are made, changed in place, looked at and dropped; memory of what was dropped is used again."""

    def run(x: torch.Tensor) -> list[torch.Tensor]:
        alive = [x * 1]
        for operation, i, j in steps:
            a, b = alive[i % len(alive)], alive[j % len(alive)]
            if operation == "+":
                alive.append(a + b)
            elif operation == "*":
                alive.append(a * 0.5 - b.cos())
            elif operation == "v":
                alive.append(a.reshape(8, 4).t())
            elif operation == "i":
                a[i % 4].add_(j)
            elif operation == "m":
                alive.extend(torch.max(torch.stack([a, b]), dim=0)[:1])
            elif len(alive) > 1:
                del alive[i % len(alive)]
        return alive

    x, other = random(4, 8), random(4, 8) - 1
    arena = Arena()
    tape = record(lambda: run(x), arena)
    record(lambda: run(other) * 2, arena)
    assert tape.refused is None
    for played, expected in zip(play_with(tape, x, other), run(other), strict=True):
        assert torch.equal(played, expected)

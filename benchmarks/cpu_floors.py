"""What this CPU can do at best, measured in the same run, and what a line of `bench_cpu.py` takes at that.

Memory is read as a decode step reads it: a buffer as large as the weights, again and again, so that a cache which holds
them helps here, too. Rates are those of large matmuls by torch. Weights in 4 or 8 bits are held against the rate of
int8, as every engine here rounds activations to 8 bits for them or might. Keys and values have 16 bits.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from minisgl.models.config import ModelConfig

sys.path.append(str(Path(__file__).parent / "gpu"))  # the arithmetic of a forward is the same there

from floors import Floors
from floors import Gpu as Device

MATMUL = 2048
SECONDS, LEAST_CALLS = 0.5, 5  # for which, and how often at least, each is repeated; the fastest counts


@dataclass(frozen=True)
class Rates:
    """bandwidth: bytes read a second. fp32, bf16, int8: operations a second, two for a product and its sum."""

    bandwidth: float
    fp32: float
    bf16: float
    int8: float

    def text(self) -> str:
        ops = ", ".join(f"{name} {getattr(self, name) / 1e9:,.0f} G" for name in ("fp32", "bf16", "int8"))
        return f"memory read {self.bandwidth / 1e9:.1f} GB/s; operations a second: {ops}"

    def of(self, quant: str) -> float:
        return self.bf16 if quant == "bf16" else self.int8


def measure_rates(num_bytes: int, size: int = MATMUL) -> Rates:
    """num_bytes: of the buffer that is read. size: of the square matrices."""
    buffer = torch.ones(num_bytes // 4)
    floats = torch.randn(size, size)
    halves = floats.bfloat16()
    integers = torch.randint(-100, 100, (size, size), dtype=torch.int8)
    ops = 2 * size**3
    return Rates(
        bandwidth=num_bytes / least_s(buffer.sum),
        fp32=ops / least_s(lambda: floats @ floats),
        bf16=ops / least_s(lambda: halves @ halves),
        int8=ops / least_s(lambda: torch._int_mm(integers, integers)),
    )


def least_s(work: Callable[[], object]) -> float:
    """Wall time of the fastest call."""
    times: list[float] = []
    while sum(times) < SECONDS or len(times) < LEAST_CALLS:
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


class CpuFloors(Floors):
    """Of a model whose weights take `weight_bytes`, the embedding, which is the head too, included."""

    weight_bytes = 0

    def __init__(self, config: ModelConfig, rates: Rates, quant: str, weight_bytes: int) -> None:
        super().__init__(config, Device("this CPU", rates.bandwidth, rates.of(quant)))
        self.weight_bytes = weight_bytes

    def shared_s(self, shared: int, num: int, own: int, out: int) -> float:
        """Seconds for `num` prompts of `own` tokens behind the same `shared` ones, whose keys are read once a step."""
        seconds = self.prefill_s([shared + own] * num, [0] + [shared] * (num - 1))
        return seconds + sum(self.decode_step_s(num, shared + num * (own + step)) for step in range(1, out))

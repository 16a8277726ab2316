"""How long a step takes on a device: a straight line through what was measured there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from minisgl.utils.registry import Registry


@dataclass(frozen=True, kw_only=True)
class StepTimes:
    """overhead_ms: of any step, reading the weights included. prefill_us: of a prompt token that is computed.

    decode_us: of a token that is generated. context_ns: of a token of KV that attention reads, once a request and step.
    """

    overhead_ms: float
    prefill_us: float
    decode_us: float
    context_ns: float

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 <= value < float("inf"):
                raise ValueError(f"{name}={value!r} is not a time of at least 0")

    def prefill_s(self, num_tokens: int, context: int) -> float:
        """Seconds that prompt tokens add to a step. context: tokens of KV read for them."""
        return num_tokens * self.prefill_us * 1e-6 + context * self.context_ns * 1e-9

    def decode_s(self, rows: Iterable[tuple[int, int]]) -> float:
        """Seconds that (tokens generated, context) of each request add: steps until all have theirs, less the first."""
        num_steps, seconds = 0, 0.0
        for num_tokens, context in rows:
            num_steps = max(num_steps, num_tokens)
            seconds += num_tokens * (self.decode_us * 1e-6 + context * self.context_ns * 1e-9)
        return seconds + max(0, num_steps - 1) * self.overhead_ms * 1e-3


STEP_TIMES: Registry[StepTimes] = Registry("engine")
# Qwen3-8B in bf16 on one H200: 16.4 GB of weights at 4.3 TB/s and the host's part; prompts at 540 TFLOP/s; a token's
# 147 KB of KV at 2.9 TB/s.
STEP_TIMES.register("h200-8b")(StepTimes(overhead_ms=5.0, prefill_us=30.0, decode_us=8.0, context_ns=51.0))
# SmolLM2-135M, Q4_1, on two cores of an EPYC (Zen 4): 172 tokens/s alone, 580 for 32 together, 1,300 of prefill.
STEP_TIMES.register("cpu-135m")(StepTimes(overhead_ms=4.6, prefill_us=740.0, decode_us=1000.0, context_ns=2300.0))

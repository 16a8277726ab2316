"""`minisgl serve` for bench_insight, with the model or with a device that takes fixed times for its steps.

    python benchmarks/insight_server.py fake|real FLAGS...      # FLAGS of minisgl serve
    python -m insight_server FOLDER                             # the engine process of a fake one

Everything is the server's own but `Engine.forward`: a step takes what it would on an H200 with a model of 8B, and every
token is the same.
"""

from __future__ import annotations

import sys
import time
from unittest.mock import patch

import numpy as np

from minisgl.core import BatchOutput, BatchResult, ForwardInput
from minisgl.simulate.step_time import STEP_TIMES
from minisgl.utils.arrays import Int32Array

TOKEN = 65
TIMES = STEP_TIMES["h200-8b"]


class FakeOutput:
    """One batch, done at `ends` (`time.perf_counter`)."""

    def __init__(self, tokens: Int32Array, begins: float, ends: float) -> None:
        self._tokens, self._begins, self.ends = tokens, begins, ends

    def result(self) -> BatchResult:
        time.sleep(max(0.0, self.ends - time.perf_counter()))
        return BatchResult(self._tokens, device_s=(self._begins, self.ends))


class FakeDevice:
    """Steps follow one another: one begins when it is launched and the one before is done."""

    def __init__(self) -> None:
        self._free_at = 0.0

    def forward(self, forward_input: ForwardInput) -> BatchOutput:
        batch = forward_input.batch
        num_rows = len(batch.table_idxs)
        begins = max(self._free_at, time.perf_counter())
        prompt_tokens = max(0, batch.num_tokens - num_rows)
        context = int(batch.device_lens.sum())
        times = (
            TIMES.prefill_s(prompt_tokens, 0),
            TIMES.decode_s([(1, 0)] * num_rows),
            TIMES.context_ns * context * 1e-9,
        )
        self._free_at = begins + TIMES.overhead_ms * 1e-3 + sum(times)
        return FakeOutput(np.full(num_rows, TOKEN, np.int32), begins, self._free_at)


def run_engine() -> int:
    from minisgl.engine.engine import Engine
    from minisgl.llm import engine_process

    device = FakeDevice()
    with patch.object(Engine, "forward", lambda _, forward_input: device.forward(forward_input)):
        return engine_process.main()


def serve(kind: str, flags: list[str]) -> None:
    from minisgl.cli import main

    with patch("minisgl.llm.child.MODULE", "insight_server" if kind == "fake" else "minisgl.llm.engine_process"):
        main(["serve", *flags])


if __name__ == "__main__":
    if sys.argv[1] in ("fake", "real"):
        serve(sys.argv[1], sys.argv[2:])
    else:
        sys.exit(run_engine())

"""A rank that has no memory for the steps that it is told: started in place of `minisgl.llm.rank_process`."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection

from minisgl.core import BatchOutput, Forward, ForwardInput
from minisgl.engine.engine import Engine
from minisgl.engine.output import FailedOutput

FAIL_AT = "TEST_FAILS_AT_STEPS"


def out_of_memory_at(forward: Forward, steps: Collection[int]) -> Forward:
    """`forward` of an engine, but for steps that have no memory before anything is computed."""

    def failing(forward_input: ForwardInput) -> BatchOutput:
        if forward_input.batch.step in steps:
            return FailedOutput(len(forward_input.batch.reqs), "out of memory in a test")
        return forward(forward_input)

    return failing


if __name__ == "__main__":
    from minisgl.llm import rank_process

    class FailingEngine(Engine):
        def forward(self, forward_input: ForwardInput) -> BatchOutput:
            return out_of_memory_at(super().forward, {int(step) for step in os.environ[FAIL_AT].split()})(forward_input)

    sys.modules["minisgl.llm.assembly"].Engine = FailingEngine  # type: ignore[attr-defined]
    code = rank_process.main()
    sys.stderr.flush()
    os._exit(code)

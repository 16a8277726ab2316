"""Where a decode step goes: time by kind of kernel and the gaps between kernels, beside the floor of each kind.

    python benchmarks/gpu/profile_step.py --model qwen3-8b --batch 256 --context 512 [--shared 8192]

torch.profiler over --steps decode steps of requests that generate as they would anywhere: scheduler, overlap and text
included. "wall" is the median step of the same workload without a profiler, which slows the host down. A gap is time
in which no kernel ran, with the profiler on. Kernels that run at once, one of which may only wait for the end of the
other (every kernel of ours does that for a moment, where the hardware lets it begin early), count twice by kind and
once in "busy".
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import harness
import kernel_times
import numpy as np
import report
import workloads
from torch.profiler import ProfilerActivity, profile

from minisgl import LLM
from minisgl.core import BatchOutput, ForwardInput

SETTLE = 8  # decode steps before the profiler starts


def make_profiler(on_gpu: bool) -> profile:
    return profile(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU], acc_events=True)


@contextmanager
def profiled_decodes(llm: LLM, num_reqs: int, num_steps: int, path: Path) -> Iterator[None]:
    """Write a trace of `num_steps` decode steps of `num_reqs` requests to `path`, once SETTLE of them have run.

    The profiler starts and stops in the thread that launches, as it must.
    """
    forward, seen = llm._forward, 0
    profiler = make_profiler(llm.spec.device.type == "cuda")

    def profiled(forward_input: ForwardInput) -> BatchOutput:
        nonlocal seen
        seen += len(forward_input.batch.reqs) == forward_input.batch.num_tokens == num_reqs
        if seen == SETTLE:
            profiler.start()
        if seen == SETTLE + num_steps:
            profiler.stop()
            profiler.export_chrome_trace(str(path))
            seen += 1  # once is enough
        return forward(forward_input)

    llm._forward = profiled  # type: ignore[method-assign]
    try:
        yield
    finally:
        llm._worker.drain()
        llm._forward = forward  # type: ignore[method-assign]


def measure(llm: LLM, args: argparse.Namespace) -> dict[str, Any]:
    """wall_ms and what the trace holds, a step."""
    out = 2 * (SETTLE + args.steps)
    ids = harness.num_ids(args.model)
    with harness.StepLog().watch(llm) as log:
        harness.run(llm, make_workload(args, out, ids, seed=0))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        with profiled_decodes(llm, args.batch, args.steps, path):
            harness.run(llm, make_workload(args, out, ids, seed=1))
        events = kernel_times.read_trace(path, on_gpu=llm.spec.device.type == "cuda")
    span = max(event.end for event in events) - events[0].begin
    busy = kernel_times.busy_us(events)
    return {
        "wall_ms": median(log.decode_s(args.batch)) * 1e3,
        "host_ms": median(log.host_s(args.batch)) * 1e3,
        "busy_us": busy / args.steps,
        "gap_us": (span - busy) / args.steps,
        "kinds": {k: (n / args.steps, us / args.steps) for k, (n, us) in kernel_times.by_kind(events).items()},
        "kernels": [
            (name, n / args.steps, us / args.steps) for name, n, us in kernel_times.by_name(events)[: args.top]
        ],
    }


def make_workload(args: argparse.Namespace, out: int, ids: int, seed: int) -> workloads.Workload:
    rng = np.random.default_rng(seed)
    return workloads.shared_system(rng, 1, args.batch, args.shared, args.context, out, num_ids=ids)


def show(args: argparse.Namespace, result: dict[str, Any]) -> None:
    floors = harness.floors_of(args.model)
    traced, own = (args.batch * (args.context + SETTLE + steps) for steps in (args.steps // 2, args.steps))
    step = floors.decode_step(args.batch, args.shared + traced)
    floor_us = {"attention": step.attention * 1e6, "gemm": step.gemm * 1e6, "sampling": step.sampling * 1e6}
    rows = [(kind, number, us, floor_us.get(kind)) for kind, (number, us) in result["kinds"].items()]
    busy, wall = (floors.decode_step_s(args.batch, args.shared + tokens) * 1e6 for tokens in (traced, own))
    rows += [("busy", None, result["busy_us"], busy), ("gaps", None, result["gap_us"], 0.0)]
    rows += [("wall", None, result["wall_ms"] * 1e3, wall), ("host, not waiting", None, result["host_ms"] * 1e3, None)]
    title = f"{args.model}, {args.batch} x ({args.shared:,} shared + {args.context} own): {report.machine()}"
    report.table(title, ("kind", "kernels a step", "us a step", "floor us"), rows)
    names = [(name[:100], number, us) for name, number, us in result["kernels"]]
    report.table("longest kernels", ("name", "a step", "us a step"), names)


def main(argv: list[str] | None = None) -> dict[str, Any]:
    args = parse_args(argv)
    length = args.shared + args.context + 2 * (SETTLE + args.steps)
    with make_profiler(on_gpu=args.device != "cpu"):
        pass  # in this thread once, before graphs are captured, or they show no kernels
    with harness.open_llm(
        args.model,
        max_running_req=args.batch,
        max_seq_len_override=max(length, harness.MIN_CONTEXT),
        **harness.engine_config(args),
    ) as llm:
        result = measure(llm, args)
    show(args, result)
    report.write_json(args.json, args, result)
    return result


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    parser = harness.parser(__doc__, model="qwen3-0.6b")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument(
        "--context", type=int, default=512, help="tokens of each prompt that it shares with nobody (512)"
    )
    parser.add_argument("--shared", type=int, default=0, help="tokens with which all prompts begin (0)")
    parser.add_argument("--steps", type=int, default=20, help="decode steps in the trace (20)")
    parser.add_argument("--top", type=int, default=25, help="kernels to name (25)")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()

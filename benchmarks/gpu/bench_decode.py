"""How long a decode step takes, by batch size: in the whole loop, and in the engine alone.

    python benchmarks/gpu/bench_decode.py --model qwen3-0.6b --batch 1,8,32,128,256 --context 512

Requests of --context random tokens, none shared, generate --steps more. "step" is the median time from one launch to
the next in the loop that serves requests; "engine" is the last such batch launched again and again, one step ahead,
with no scheduler and no text. Its contexts are --steps / 2 tokens longer than in the median step, so it may take longer
than that. The floor reads all weights and the KV of the median step once (see floors.py).
"""

from __future__ import annotations

import argparse
from statistics import median
from typing import Any

import harness
import numpy as np
import report
from workloads import Workload

from minisgl import LLM

PEERS_MS = {"qwen3-0.6b": {1: 1.77, 32: 2.17, 128: 3.77, 256: 6.05}, "qwen3-14b": {256: 21.1}}
PEER = "mini-sglang 20fcd7f on an H200, its contexts were those of the offline workload"


def measure(llm: LLM, args: argparse.Namespace, num_reqs: int, floors: harness.Floors) -> dict[str, Any]:
    """One batch size; times in ms."""
    rng = np.random.default_rng(num_reqs)
    prompts = rng.integers(0, harness.num_ids(args.model), (num_reqs, args.context)).tolist()
    with harness.StepLog().watch(llm) as log:
        harness.run(llm, Workload(prompts, [args.steps] * num_reqs))
    engine_s = harness.replay_s(llm, log.last_decode[num_reqs], args.steps)
    kv_tokens = num_reqs * (args.context + args.steps // 2)
    launches = [step.launch_s for step in log.steps if step.is_decode]
    return {
        "batch": num_reqs,
        "context": args.context + args.steps // 2,
        "step": median(log.decode_s(num_reqs)) * 1e3,
        "engine": engine_s * 1e3,
        "floor": floors.decode_step_s(num_reqs, kv_tokens) * 1e3,
        "host": median(log.host_s(num_reqs)) * 1e3,
        "launch": median(launches) * 1e3,
        "peer": PEERS_MS.get(args.model, {}).get(num_reqs),
    }


def main(argv: list[str] | None = None) -> list[dict[str, Any]]:
    args = parse_args(argv)
    batches = [int(size) for size in args.batch.split(",")]
    floors = harness.floors_of(args.model)
    length = args.context + args.steps
    with harness.open_llm(
        args.model,
        max_running_req=max(batches),
        max_seq_len_override=max(length, harness.MIN_CONTEXT),
        **harness.engine_config(args),
    ) as llm:
        results = [measure(llm, args, num_reqs, floors) for num_reqs in batches]
    report.table(
        f"{args.model}, ms a decode step (peer: {PEER}): {report.machine()}",
        tuple(results[0]),
        [tuple(result.values()) for result in results],
    )
    report.write_json(args.json, args, results)
    return results


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    parser = harness.parser(__doc__, model="qwen3-0.6b")
    parser.add_argument("--batch", default="1,8,32,128,256", help="numbers of requests (1,8,32,128,256)")
    parser.add_argument("--context", type=int, default=512, help="tokens of each prompt (512)")
    parser.add_argument("--steps", type=int, default=64, help="tokens to generate (64)")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()

"""Output tokens a second of the predecessor's offline workload, beside the floor and what others reach on it.

    python benchmarks/gpu/bench_offline.py --model qwen3-8b [--rounds 2] [--json FILE]

256 sequences, 100 to 1,024 tokens in and out, seed 0, temperature 0.6, end tokens ignored; wall time from submission
to the last text, prefill included. Rounds have other token ids, so that nothing is cached from the one before.
Random weights of the real shape; the floor is that of an NVIDIA H200 (see floors.py), where the others were measured.
"""

from __future__ import annotations

import argparse
from statistics import mean, median
from typing import Any

import harness
import report
import workloads

from minisgl import LLM

PEERS = {
    "qwen3-0.6b": {"mini-sglang 20fcd7f": 21_366, "nano-vllm bb823b3": 18_875, "transformers 5.17, compiled": 16_514},
    "qwen3-8b": {"mini-sglang 20fcd7f": 8_892, "nano-vllm bb823b3": 8_060},
    "qwen3-14b": {"mini-sglang 20fcd7f": 5_824},
}


def measure(llm: LLM, workload: workloads.Workload) -> dict[str, Any]:
    """One round. host_ms: median of what a step takes the loop's thread when it does not wait."""
    before = llm.stats()["computed_tokens"]
    with harness.StepLog().watch(llm) as log:
        seconds, _ = harness.run(llm, workload)
    largest = max(step.num_reqs for step in log.steps if step.is_decode)
    return {
        "tokens_per_s": workload.num_output_tokens / seconds,
        "seconds": seconds,
        "steps": len(log.steps),
        "decode_steps": sum(step.is_decode for step in log.steps),
        "mean_batch": mean(step.num_reqs for step in log.steps if step.is_decode),
        "host_ms": median(log.host_s()) * 1e3,
        "host_s": sum(log.host_s()),
        "launch_ms": median(step.launch_s for step in log.steps if step.is_decode) * 1e3,
        "waited_s": sum(step.waited_s for step in log.steps),
        "largest_batch": largest,
        "largest_batch_ms": _median_ms(log.decode_s(largest)),
        "largest_batch_host_ms": _median_ms(log.host_s(largest)),
        "computed_tokens": llm.stats()["computed_tokens"] - before,
        "prompt_tokens": workload.num_prompt_tokens,
    }


def _median_ms(seconds: list[float]) -> float | None:
    return median(seconds) * 1e3 if seconds else None


def show(name: str, workload: workloads.Workload, rounds: list[dict[str, Any]]) -> None:
    prompt_lens = [len(prompt) for prompt in workload.prompts]
    floor_s = harness.floors_of(name).workload_s(prompt_lens, workload.output_lens)
    floor = workload.num_output_tokens / floor_s
    rows: list[tuple[object, ...]] = [("floor on an H200", round(floor), 100.0, floor_s)]
    rows += [
        (f"ours, round {i}", round(r["tokens_per_s"]), _share(r, floor), r["seconds"]) for i, r in enumerate(rounds)
    ]
    if len(workload.prompts) == 256:
        rows += [(peer, rate, 100 * rate / floor, None) for peer, rate in PEERS.get(name, {}).items()]
    report.table(f"{name}: {report.machine()}", ("engine", "output tok/s", "% of floor", "seconds"), rows)
    keys = [key for key in rounds[0] if key not in ("tokens_per_s", "seconds")]
    report.table("rounds", ("", *map(str, range(len(rounds)))), [(key, *(r[key] for r in rounds)) for key in keys])


def _share(result: dict[str, Any], floor: float) -> float:
    return float(100 * result["tokens_per_s"] / floor)


def main(argv: list[str] | None = None) -> list[dict[str, Any]]:
    args = parse_args(argv)
    ids = harness.num_ids(args.model)
    made = [workloads.offline(args.num_seqs, args.max_len, round_, ids) for round_ in range(args.rounds)]
    config = harness.engine_config(args)
    max_seq_len = max(2 * args.max_len, harness.MIN_CONTEXT)
    with harness.open_llm(args.model, max_running_req=args.num_seqs, max_seq_len_override=max_seq_len, **config) as llm:
        results = [measure(llm, workload) for workload in made]
        account = report.memory_account(llm)
    show(args.model, made[0], results)
    if account:
        report.table("memory, GiB", tuple(account), [tuple(account.values())])
    report.write_json(args.json, args, {"rounds": results, "memory_gib": account})
    return results


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    parser = harness.parser(__doc__, model="qwen3-0.6b")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--num-seqs", type=int, default=256)
    parser.add_argument("--max-len", type=int, default=1024, help="longest input and output (1024)")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()

"""How long the attention of one layer takes, with the heads of a model, beside the least time that it can take.

    python benchmarks/gpu/bench_attention_layer.py --model qwen3-8b [--backend triton] [--page-size 1] [--rounds 9]

Decodes have one new token a request, prompts are all new. A case with a shared prefix is timed twice: each row reads it
for itself, then it is read once. Random keys and values in pages dealt at random; the median of the rounds, over LAYERS
layers that no cache holds together, on a GPU as one CUDA graph. Storing the new keys and values is not part of it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import report
import torch
from floors import H200
from models import SHAPES, hf_config

from minisgl.attention import AttnConfig, AttnForm, create_attention_backend
from minisgl.core import Batch, PageTableUpdate, PrefixGroup, Req, SamplingParams
from minisgl.engine.staging import make_staging
from minisgl.kvcache.pool import MHAKVCache
from minisgl.models.config import ModelConfig

LAYERS = 6


@dataclass(frozen=True)
class Case:
    """rows: requests. context: tokens of each, the new ones included. shared: the first of them, which all share."""

    rows: int
    context: int
    shared: int = 0
    is_prompt: bool = False

    def __str__(self) -> str:
        own = self.context - self.shared
        length = f"({self.shared:,} shared + {own})" if self.shared else f"{own:,}"
        return f"{'prompts' if self.is_prompt else 'decodes'}: {self.rows} x {length}"

    @property
    def distinct_tokens(self) -> int:
        return self.shared + self.rows * (self.context - self.shared)

    def floor_us(self, config: ModelConfig) -> float:
        """Every distinct key and value is read once, and every pair of a query and a key it sees is multiplied."""
        pairs = self.rows * self.context * (self.context / 2 if self.is_prompt else 1)
        flops = 4 * pairs * config.num_qo_heads * config.head_dim
        num_bytes = 4 * self.distinct_tokens * config.num_kv_heads * config.head_dim
        return 1e6 * max(flops / H200.flops, num_bytes / H200.bandwidth)


REAL = (
    Case(256, 8192 + 256, shared=8192),
    Case(256, 512),
    Case(64, 1024),
    Case(8, 4096),
    Case(1, 1024),
    Case(16, 512, is_prompt=True),
    Case(2, 8192, is_prompt=True),
)
TRIAL = (Case(3, 48, shared=32), Case(2, 16, is_prompt=True))


def measure(case: Case, config: ModelConfig, args: argparse.Namespace, reads_once: bool) -> float:
    """Microseconds of one layer."""
    device, page_size = torch.device(args.device), args.page_size
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    table, num_pages = deal_pages(case, page_size)
    pool = MHAKVCache(config.num_kv_heads, LAYERS, config.head_dim, num_pages, page_size, dtype, device)
    for layer_id in range(LAYERS):
        pool.k_cache(layer_id).normal_()
        pool.v_cache(layer_id).normal_()
    attn_config = AttnConfig(
        kv_pool=pool,
        page_table=torch.from_numpy(table).to(device),
        host_table=table,
        page_size=page_size,
        num_qo_heads=config.num_qo_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        form=AttnForm(scale=config.head_dim**-0.5, windows=(0,) * LAYERS),
        max_running_req=case.rows,
        shared_prefix=reads_once,
    )
    backend, staging, batch = (
        create_attention_backend(args.backend, attn_config),
        make_staging(device),
        make_batch(case),
    )
    staging.begin()
    meta = backend.plan(batch, staging)
    staging.send()
    heads = (config.num_qo_heads, config.num_kv_heads, config.num_kv_heads)
    qkv = torch.randn(batch.num_tokens, sum(heads), config.head_dim, dtype=dtype, device=device)
    q, k, v = qkv.split(heads, dim=1)

    def all_layers() -> None:
        for layer_id in range(LAYERS):
            backend.forward(q, k, v, layer_id, meta)

    time = time_graph if device.type == "cuda" else time_call
    return 1e6 * median(time(all_layers, args.rounds)) / LAYERS


def deal_pages(case: Case, page_size: int) -> tuple[np.ndarray, int]:
    """[rows, pages of a row] in random order, those of the shared prefix alike, and how many pages there are."""
    shared, pages_a_row = case.shared // page_size, -(-case.context // page_size)
    num_pages = shared + case.rows * (pages_a_row - shared)
    order = np.random.default_rng(0).permutation(num_pages).astype(np.int32)
    own = order[shared:].reshape(case.rows, -1)
    return np.concatenate([np.tile(order[:shared], (case.rows, 1)), own], axis=1), num_pages


def make_batch(case: Case) -> Batch:
    none, ids, length = np.empty(0, np.int32), np.zeros(case.context, np.int32), case.context
    cached = 0 if case.is_prompt else length - 1
    reqs = tuple(Req(row, row, cached, length, length + 1, length, ids, SamplingParams()) for row in range(case.rows))
    groups = (PrefixGroup(np.arange(case.rows, dtype=np.int32), 0, case.shared),) if case.shared else ()
    return Batch(reqs, PageTableUpdate(none, none, none), step=0, groups=groups)


def time_call(call: Callable[[], None], rounds: int) -> list[float]:
    """Seconds."""
    times = []
    for _ in range(rounds + 1):
        started = perf_counter()
        call()
        times.append(perf_counter() - started)
    return times[1:]


def time_graph(call: Callable[[], None], rounds: int) -> list[float]:
    """Seconds; everything is compiled, and nothing but the device's own time counts."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    times = []
    for _ in range(rounds + 1):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return times[1:]


def main(argv: list[str] | None = None) -> list[dict[str, Any]]:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--model", default="qwen3-8b", choices=SHAPES)
    options.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
    options.add_argument("--backend", default="triton", help="attention backend (triton)")
    options.add_argument("--page-size", type=int, default=1)
    options.add_argument("--rounds", type=int, default=9)
    options.add_argument("--json", type=Path, help="write everything to this file, too")
    args = options.parse_args(argv)
    config, results = ModelConfig.from_hf(hf_config(args.model)), []
    for case in REAL if args.device == "cuda" else TRIAL:
        each = measure(case, config, args, reads_once=False)
        once = measure(case, config, args, reads_once=True) if case.shared else None
        results.append({"case": str(case), "each": each, "once": once, "floor": case.floor_us(config)})
    title = f"{args.model}, us of one layer's attention: {report.machine()}"
    columns = ("case", "us", "shared read once", "floor on an H200")
    report.table(title, columns, [tuple(result.values()) for result in results])
    report.write_json(args.json, args, results)
    return results


if __name__ == "__main__":
    main()

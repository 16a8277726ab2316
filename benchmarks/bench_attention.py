"""How long attention takes for a layer on a CPU, with SmolLM2-135M's heads, next to the memory's own speed.

    python benchmarks/bench_attention.py [CASE ...] [--backends torch,cpu] [--layout LAYOUT] [--threads 2] [--rounds 9]

The backends take turns, and share prefixes as they think best. Milliseconds a layer, by the clock, or of CPU time if
there is one thread, which other programs disturb little: the least of the rounds, over LAYERS layers whose pools do
not fit a core's own cache together. `floor` is what reading each distinct key and value once would take at the
bandwidth measured first; for extends arithmetic is the limit, not this. `plan` is the host's work, once a batch.
Layouts: in order = each request's slots are one run; in turn = so are the prompts, but the last 128 tokens were
decoded side by side, one page a request; scattered = random.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter, thread_time

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from stopwatch import machine

from minisgl.attention import AttnConfig, AttnForm, create_attention_backend
from minisgl.core import Batch, PageTableUpdate, PrefixGroup, Req, SamplingParams
from minisgl.engine.staging import HostStaging
from minisgl.kvcache.pool import MHAKVCache

LAYERS = 10
QO_HEADS, KV_HEADS, HEAD_DIM = 9, 3, 64
DECODED = 128
LAYOUTS = ("in order", "in turn", "scattered")


@dataclass(frozen=True)
class Case:
    """context: tokens of each request, the new ones included. extend: new tokens a request. shared: prefix of all."""

    context: tuple[int, ...]
    extend: int = 1
    shared: int = 0

    @property
    def distinct_tokens(self) -> int:
        return self.shared + sum(n - self.shared for n in self.context)


MIXED = tuple(np.random.default_rng(0).integers(64, 1025, 32).tolist())
CASES = {
    "decode 1 x 256": Case((256,)),
    "decode 1 x 1024": Case((1024,)),
    "decode 8 x 256": Case((256,) * 8),
    "decode 32 x 256": Case((256,) * 32),
    "decode 32 x 64-1024": Case(MIXED),
    "decode 32 x (1000 shared + 46)": Case((1046,) * 32, shared=1000),
    "extend 128": Case((128,), extend=128),
    "extend 1024": Case((1024,), extend=1024),
    "extend 128 after 896": Case((1024,), extend=128),
    "extend 32 x (30 after 1000 shared)": Case((1030,) * 32, extend=30, shared=1000),
    "extend 32 x (30 after 200 own)": Case((230,) * 32, extend=30),
}


def deal_pages(case: Case, layout: str) -> np.ndarray:
    """[B, longest context] pages of one token each, as the named layout would have them."""
    table = np.zeros((len(case.context), max(case.context)), np.int32)
    turns = DECODED if layout == "in turn" and case.extend == 1 else 0
    table[:, : case.shared] = np.arange(case.shared)
    cells = [(i, p) for i, n in enumerate(case.context) for p in range(case.shared, n) if p < n - turns]
    cells += [(i, n - t) for t in range(turns, 0, -1) for i, n in enumerate(case.context) if n - t >= case.shared]
    pages = np.arange(case.distinct_tokens)
    if layout == "scattered":
        pages = np.random.default_rng(0).permutation(pages)
        table[:, : case.shared] = pages[: case.shared]
    rows, columns = np.array(cells).T
    table[rows, columns] = pages[case.shared :]
    return table


def make_batch(case: Case) -> Batch:
    none = np.empty(0, np.int32)
    rows = np.arange(len(case.context), dtype=np.int32)
    groups = (PrefixGroup(rows, 0, case.shared),) if case.shared else ()
    return Batch(
        reqs=tuple(make_reqs(case)), page_table_update=PageTableUpdate(none, none, none), step=0, groups=groups
    )


def make_reqs(case: Case) -> Iterator[Req]:
    for i, n in enumerate(case.context):
        ids = np.zeros(n, np.int32)
        yield Req(i, i, n - case.extend, n, n + 1, n, ids, SamplingParams())


def make_runs(
    case: Case, layout: str, dtype: torch.dtype, name: str
) -> tuple[Callable[[], None], Callable[[], object]]:
    """All layers of a batch by the backend `name`, and its plan."""
    pool = MHAKVCache(KV_HEADS, LAYERS, HEAD_DIM, case.distinct_tokens, 1, dtype, torch.device("cpu"))
    for layer_id in range(LAYERS):
        pool.k_cache(layer_id).normal_()
        pool.v_cache(layer_id).normal_()
    table = deal_pages(case, layout)
    config = AttnConfig(
        kv_pool=pool,
        page_table=torch.from_numpy(table),
        host_table=table,
        page_size=1,
        num_qo_heads=QO_HEADS,
        num_kv_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        form=AttnForm(scale=HEAD_DIM**-0.5, windows=(0,) * LAYERS),
        max_running_req=len(table),
    )
    backend, staging = create_attention_backend(name, config), HostStaging()
    batch = make_batch(case)
    meta = backend.plan(batch, staging)
    qkv = torch.randn(batch.num_tokens, QO_HEADS + 2 * KV_HEADS, HEAD_DIM).to(dtype)
    q, k, v = qkv.split([QO_HEADS, KV_HEADS, KV_HEADS], dim=1)

    def all_layers() -> None:
        for layer_id in range(LAYERS):
            backend.forward(q, k, v, layer_id, meta)

    return all_layers, lambda: backend.plan(batch, staging)


def least_ms(calls: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """Of each, in turns."""
    clock = thread_time if torch.get_num_threads() == 1 else perf_counter
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds + 1):
        for call, of_call in zip(calls, times, strict=True):
            start = clock()
            call()
            of_call.append(clock() - start)
    return [min(of_call[1:]) * 1e3 for of_call in times]


def read_bandwidth(rounds: int) -> float:
    """Bytes a second that a sum over 1 GiB reads."""
    x = torch.ones(1 << 28)
    return x.nbytes / least_ms([x.sum], rounds)[0] * 1e3


def report(names: list[str], args: argparse.Namespace) -> Table:
    bandwidth, backends = read_bandwidth(args.rounds), args.backends.split(",")
    columns = (f"{name}, {what}" for what in ("ms", "plan") for name in backends)
    table = Table("case", "dtype", *columns, "floor", title=f"ms a layer; reads {bandwidth / 1e9:.1f} GB/s")
    for name in names:
        for dtype_name in args.dtype.split(","):
            case, dtype = CASES[name], getattr(torch, dtype_name)
            runs = [make_runs(case, args.layout, dtype, backend) for backend in backends]
            layers = least_ms([run for run, _ in runs], args.rounds)
            plans = least_ms([plan for _, plan in runs], args.rounds)
            floor = case.distinct_tokens * 2 * KV_HEADS * HEAD_DIM * dtype.itemsize / bandwidth * 1e3
            cells = (*(ms / LAYERS for ms in layers), *plans, floor)
            table.add_row(name, dtype_name, *(f"{ms:.2f}" for ms in cells))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; all if none is named")
    parser.add_argument("--dtype", default="float32,bfloat16")
    parser.add_argument("--backends", default="torch,cpu")
    parser.add_argument("--layout", default="in turn", choices=LAYOUTS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    console = Console()
    console.print(machine())
    console.print(report(args.cases or list(CASES), args))


if __name__ == "__main__":
    main()

"""How long the radix cache takes for a match, a turn of a chat, an eviction, a look-up, a request; and its peers.

    python benchmarks/bench_radix.py [W1 W2 W3 W4 W5 W5s] [--page 1,16] [--quick] [--ours] [--cpp-tree DIR]

CPU time of one thread in microseconds, by the calls that a scheduler makes. Ours and the peers take turns in one
process, where these are installed (docs/benchmarks-radix.md says how); where not, or with --ours, figures of another
machine stand in for them, scaled by how long a comparison of 100,000 tokens takes here and there, and marked with a ~.
W1 and W4 are medians, the others means.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path

import radix_runs as runs
import radix_targets as targets
import torch
from radix_caches import Minisgl
from radix_peers import Peers
from rich.console import Console
from rich.table import Table
from stopwatch import compare_us, machine

OURS = Minisgl.name


@dataclass(frozen=True)
class Row:
    """One figure: microseconds, but for the rows that say bytes. scaled: the reference machine's, for peers."""

    what: str
    page_size: int
    measured: dict[str, float]
    scaled: dict[str, float] = field(default_factory=dict)

    @property
    def ours(self) -> float:
        return self.measured[OURS]

    @property
    def target(self) -> targets.Target:
        return targets.TARGETS.get(self.what, targets.Target())

    def rival(self) -> tuple[str, float] | None:
        """The peer that the target names, else the fastest tree, with its figure."""
        figures = {**self.scaled, **self.measured}
        names = [self.target.peer] if self.target.peer else targets.TREE_PEERS
        known = [(figures[name], name) for name in names if name in figures]
        return (min(known)[1], min(known)[0]) if known else None

    def limits(self) -> list[tuple[str, float]]:
        """What is asked of this figure: in words, and how far ours is within it (1.0: just so)."""
        found, target, rival = [], self.target, self.rival()
        if target.ratio is not None and rival is not None:
            found.append((f"{target.ratio:g}x", self.ours / rival[1] / target.ratio))
        if target.memcmp is not None:
            found.append((f"{target.memcmp:g}x memcmp", self.ours / self.measured[runs.MEMCMP] / target.memcmp))
        most = target.bytes_page_1 if self.page_size == 1 else target.bytes_page_16
        if most is not None:
            found.append((f"{most:g} bytes", self.ours / most))
        return found


def figures(job: runs.Job, page_size: int) -> list[tuple[str, dict[str, float]]]:
    torch.set_num_threads(1)
    return list(job.run(job.kinds, page_size, **job.options))


def in_own_process(job: runs.Job, page_size: int) -> list[tuple[str, dict[str, float]]]:
    """A new process, whose memory is its own; forked, so that the peers are imported only once."""
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as process:
        found = process.submit(figures, job, page_size).result()
    for what, measured in found:
        known = ", ".join(f"{name} {figure:,.1f}" for name, figure in measured.items())
        print(f"page {page_size}, {what}: {known}", file=sys.stderr, flush=True)
    return found


def measure(names: list[str], page_size: int, quick: bool, peers: Peers | None, scale: float) -> list[Row]:
    measured: dict[str, dict[str, float]] = {}
    for name in names:
        for job in runs.jobs(name, Minisgl, peers.at(page_size) if peers else [], quick):
            for what, by_cache in in_own_process(job, page_size):
                measured.setdefault(what, {}).update(by_cache)
    return [Row(what, page_size, found, targets.reference(what, page_size, scale)) for what, found in measured.items()]


def cell(row: Row, peer: str) -> str:
    if peer in row.measured:
        return f"{row.measured[peer]:,.1f}"
    return f"~{row.scaled[peer]:,.0f}" if peer in row.scaled else "-"


def print_table(rows: list[Row], page_size: int) -> None:
    shown = list(dict.fromkeys(name for row in rows for name in (*row.measured, *row.scaled) if name != OURS))
    table = Table(f"page size {page_size}", OURS, *shown, "ours / best", "target", "met", expand=True)
    for row in rows:
        rival, limits = row.rival(), row.limits()
        ratio = "-" if rival is None else f"{row.ours / rival[1]:.3f}"
        met = ", ".join("yes" if share <= 1 else f"NO, {share:.2f} of it" for _, share in limits)
        wanted = " and ".join(words for words, _ in limits)
        table.add_row(row.what, f"{row.ours:,.1f}", *(cell(row, name) for name in shown), ratio, wanted, met)
    Console(width=180).print(table)
    evictions = {row.what.split()[-2]: row for row in rows if row.what.startswith("W3")}
    for size, most in targets.W3_GROWTH.items():
        # In turns with others every cache is colder than alone, so only equal company compares.
        if size in evictions and evictions[size].measured.keys() == evictions["10,000"].measured.keys():
            growth = evictions[size].ours / evictions["10,000"].ours
            print(f"W3 {size} leaves: {growth:.1f} times 10,000 (target: {most:g})")


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "workloads", nargs="*", metavar="W", help=f"of {', '.join(runs.WORKLOADS)}; all if none is named"
    )
    parser.add_argument("--page", default="1,16", help="page sizes, separated by commas")
    parser.add_argument("--quick", action="store_true", help="smaller workloads")
    parser.add_argument("--ours", action="store_true", help="leave the peers out: with --quick a few seconds in all")
    parser.add_argument("--cpp-tree", type=Path, metavar="DIR", help="SGLang's folder cpp_radix_tree, to be compiled")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    args = parser.parse_args()
    if unknown := set(args.workloads) - set(runs.WORKLOADS):
        parser.error(f"unknown workloads: {', '.join(sorted(unknown))}")
    return args


def main() -> None:
    args = parse_args()
    scale = compare_us() / targets.REFERENCE_COMPARE_US
    peers = None if args.ours else Peers(args.cpp_tree)
    print(
        f"{machine()}\ncomparing 100,000 tokens takes {scale:.2f} times the {targets.REFERENCE_COMPARE_US} us of the ~"
    )
    rows: list[Row] = []
    for page_size in map(int, args.page.split(",")):
        found = measure(args.workloads or list(runs.WORKLOADS), page_size, args.quick, peers, scale)
        print_table(found, page_size)
        rows += found
    if args.json:
        report = {"machine": machine(), "scale": scale, "quick": args.quick, "rows": [asdict(row) for row in rows]}
        args.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

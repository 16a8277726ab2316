"""SmolLM2 on this CPU: minisgl beside the peers that are installed, in one run, and beside what the machine could do.

    python benchmarks/bench_cpu.py --llama-server build/bin/llama-server --vllm-python vllm/bin/python
    python benchmarks/bench_cpu.py --lines single-q4_1,8 --engines minisgl,llama-server --rounds 5
    python benchmarks/bench_cpu.py --lines first --engines minisgl            # only ours

Every engine is a process in a Python of its own; docs/benchmarks.md says how to install them. All get the same random
token ids, take the likeliest token and ignore end tokens; time is wall time from the submission of all prompts to the
last token, prefill included. Engines take turns within a round, one at a time; lines and rounds have other ids, so that
nothing is cached from those before. A figure is the median of its rounds. An engine that is missing or fails is a
line that says so. Engines end with the run, however that ends.

"of best peer" is speed over speed, above 1 where faster; "of floor" is the share of what the measured rates of this
machine allow (cpu_floors.py); "others" is how many cores other processes kept busy meanwhile: with more than a few
tenths the figures are worth little.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

import numpy as np
from cpu_engines import KINDS, OURS, EngineError, EngineProcess, Kind, OurProcess, Places
from cpu_floors import CpuFloors, Rates, measure_rates
from cpu_lines import LINES, Line
from cpu_load import OtherLoad
from cpu_models import HOW_MADE, Models
from cpu_report import Result, table
from rich.console import Console
from stopwatch import machine

from minisgl.env import ENV
from minisgl.models.config import ModelConfig
from minisgl.models.gguf_checkpoint import GGUFCheckpoint

Variant = tuple[Kind, str]  # and its quantisation


class Fleet:
    """Engines by kind and quantisation, started when first asked for; `notes` says what each is, or why it is not."""

    def __init__(self, models: Models, places: Places, kv_items: int, threads: int, timeout: float, logs: Path) -> None:
        self.notes: dict[str, str] = {}
        self._models, self._places, self._kv_items = models, places, kv_items
        self._threads, self._timeout, self._logs = threads, timeout, logs
        self._running: dict[Variant, EngineProcess] = {}

    def get(self, variant: Variant) -> EngineProcess | None:
        """None: it cannot be had, which is said once."""
        if variant not in self._running and label(variant) not in self.notes:
            try:
                self._running[variant] = engine = self._start(variant)
                self._note(variant, engine.hello["about"])
            except (EngineError, RuntimeError, OSError) as error:
                self._note(variant, f"not measured: {error}")
        return self._running.get(variant)

    def _start(self, variant: Variant) -> EngineProcess:
        kind, quant = variant
        command = self._places.command(kind)
        if command is None:
            raise EngineError("no option says where it is")
        file = kind.files[quant]
        start = OurProcess if kind is OURS else EngineProcess
        return start(
            command,
            self._models.path(file),
            weight_bytes=self._models.weight_bytes(file),
            kv_items=self._kv_items,
            threads=self._threads,
            log=self._logs / f"{label(variant)}.log".replace(" ", "-"),
            timeout=self._timeout,
        )

    def drop(self, variant: Variant, why: EngineError) -> None:
        self._note(variant, f"not measured any further: {why}")
        self._running.pop(variant).close()

    def keep(self, quants: Sequence[str]) -> None:
        """Close those of all other quantisations."""
        for variant in [each for each in self._running if each[1] not in quants]:
            self._running.pop(variant).close()

    def kill(self) -> None:
        """End all at once, also what they are at."""
        for engine in self._running.values():
            engine.kill()
        self._running.clear()

    def _note(self, variant: Variant, text: str) -> None:
        self.notes[label(variant)] = text
        print(f"{label(variant)}: {text}", flush=True)


def label(variant: Variant) -> str:
    return f"{variant[0].name} {variant[1]}"


def measure(line: Line, kinds: Sequence[Kind], fleet: Fleet, rounds: int, seed: int) -> list[Result]:
    """One result a figure and engine; those that fail in some round have the rounds before it."""
    variants = [(kind, quant) for kind in kinds for quant in kind.files if quant in line.quants]
    results: dict[Variant, list[Result]] = {}
    for round_ in range(1 if line.once else rounds):
        for variant in variants:
            if (engine := fleet.get(variant)) is None:
                continue
            others = OtherLoad()
            try:
                values = line.measure(engine, np.random.default_rng([seed, round_, *line.name.encode()]))
            except EngineError as error:
                fleet.drop(variant, error)
                continue
            for figure, value, result in zip(
                line.figures, values, results.setdefault(variant, new_results(line, variant)), strict=True
            ):
                result.values.append(value)
                result.others.append(others.cores())
                print(f"{figure.title}, {label(variant)}: {value:.4g} {figure.unit}", flush=True)
    return [result for each in results.values() for result in each]


def new_results(line: Line, variant: Variant) -> list[Result]:
    return [Result(figure, variant[0].name, variant[1], []) for figure in line.figures]


def add_floors(results: Sequence[Result], models: Models, config: ModelConfig, rates: Rates) -> None:
    """Of every engine by the weights that it reads."""
    for result in results:
        if result.figure.floor is not None:
            weight_bytes = models.weight_bytes(KINDS[result.engine].files[result.quant])
            result.floor = result.figure.floor(CpuFloors(config, rates, result.quant, weight_bytes))


def main(argv: Sequence[str] | None = None) -> list[Result]:
    args = parse_args(argv)
    for folder in filter(None, (args.logs, args.json and args.json.parent)):
        folder.mkdir(parents=True, exist_ok=True)  # before anything takes its time
    places = Places(**{each.name: getattr(args, each.name) for each in fields(Places)})
    models = Models(args.folder, args.onnx_python)
    checkpoint = models.path("q4_1")
    config = ModelConfig.from_hf(GGUFCheckpoint(checkpoint).hf_config())
    rates = measure_rates(models.weight_bytes("q4_1"))
    print(rates.text(), flush=True)
    kinds, lines = [KINDS[name] for name in args.engines], [LINES[name] for name in args.lines]
    kv_items = 2 * config.num_layers * config.num_kv_heads * config.head_dim
    results: list[Result] = []
    with sigterm_as_exit(), tempfile.TemporaryDirectory() as scratch:
        fleet = Fleet(models, places, kv_items, args.threads, args.timeout, args.logs or Path(scratch))
        try:
            for number, line in enumerate(lines):
                results += measure(line, kinds, fleet, args.rounds, args.seed)
                fleet.keep([quant for later in lines[number + 1 :] for quant in later.quants])
        except BaseException:  # SIGINT and SIGTERM, too
            fleet.kill()
            raise
        fleet.keep([])
    add_floors(results, models, config, rates)
    report(args, results, rates, fleet.notes)
    return results


@contextmanager
def sigterm_as_exit() -> Iterator[None]:
    """SIGTERM raises SystemExit, so that what was started is ended."""
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def report(args: argparse.Namespace, results: Sequence[Result], rates: Rates, notes: dict[str, str]) -> None:
    files = {KINDS[result.engine].files[result.quant] for result in results}
    notes |= {f"file {name}": made for name, made in HOW_MADE.items() if name in files}
    Console(width=140).print(table(results, f"SmolLM2-135M-Instruct: {machine()}; {args.threads} threads"))
    print(rates.text(), *(f"{name}: {note}" for name, note in notes.items()), sep="\n")
    if args.json:
        found = {"machine": machine(), "rates": vars(rates), "notes": notes, "results": [r.json() for r in results]}
        args.json.write_text(json.dumps(found, indent=1) + "\n")


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=some_of(LINES), default=list(LINES), help=f"some of {', '.join(LINES)}")
    parser.add_argument("--engines", type=some_of(KINDS), default=list(KINDS), help=f"some of {', '.join(KINDS)}")
    parser.add_argument("--llama-server", type=Path, help="llama.cpp's server")
    parser.add_argument("--node-llama-cpp", type=Path, help="the npm package's folder")
    parser.add_argument("--vllm-python", type=Path, help="a Python that has vLLM's CPU build; alike:")
    parser.add_argument("--openvino-python", type=Path)
    parser.add_argument("--onnx-python", type=Path, help="with torch, transformers and onnx-ir for its model builder")
    parser.add_argument("--dtype", default="auto", help="of ours (auto)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of every engine (all cores)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one start or answer (300)")
    parser.add_argument("--folder", type=Path, default=ENV.CACHE_DIR.value / "bench", help="where made models are kept")
    parser.add_argument("--logs", type=Path, help="folder for what the engines print (default: it is removed)")
    parser.add_argument("--json", type=Path)
    return parser.parse_args(argv)


def some_of(known: Mapping[str, object]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        names = text.split(",")
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}")
        return names

    return parse


if __name__ == "__main__":
    main()

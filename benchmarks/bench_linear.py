"""Linear layers of a decoder layer, and the head, by our C++ kernels, by oneDNN on packed weights, and by torch (MKL).

    python benchmarks/bench_linear.py                              # SmolLM2-135M's shapes, both dtypes, 2 threads
    python benchmarks/bench_linear.py --model qwen3-0.6b --dtypes bfloat16 --threads 1 --rows 1,32

Microseconds for the four linear layers of every decoder layer in turn, as a step has them: the weights of one have left
the nearer caches when it comes again. Sides take turns in one process; medians of the thread's own time ("cpu", of all
threads) or of the clock ("wall"). Lower is better; "ratio" is the best of the others to ours.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from stopwatch import machine

from minisgl.kernel.cpu_linear import FloatPanels
from minisgl.utils.processor import cpu_is_intel


class Shapes(NamedTuple):
    """num_layers: as many as are multiplied in turn. linears: outputs and inputs of those in a layer."""

    num_layers: int
    linears: tuple[tuple[int, int], ...]
    head: tuple[int, int]


MODELS = {
    "smollm2-135m": Shapes(30, ((960, 576), (576, 576), (3072, 576), (576, 1536)), (49152, 576)),
    "qwen3-0.6b": Shapes(8, ((4096, 1024), (1024, 2048), (6144, 1024), (1024, 3072)), (151936, 1024)),
}
Multiply = Callable[[torch.Tensor], torch.Tensor]


def ours(weight: torch.Tensor) -> Multiply:
    panels = FloatPanels((weight.shape[0], weight.shape[1]), weight.dtype)
    panels.write(0, weight)
    return panels.finish().multiply


def onednn(weight: torch.Tensor) -> Multiply:
    packed = torch.ops.mkldnn._reorder_linear_weight(weight)
    return lambda x: torch.ops.mkldnn._linear_pointwise(x, packed, None, "none", [], "")


def plain(weight: torch.Tensor) -> Multiply:
    return lambda x: F.linear(x, weight)


SIDES = {"ours": ours, "oneDNN": onednn, "torch": plain}


def clocks(work: Callable[[], None]) -> tuple[float, float]:
    """Microseconds of all threads, and by the wall."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return (time.process_time() - cpu) * 1e6, (time.perf_counter() - wall) * 1e6


def compare(weights: list[torch.Tensor], rows: int, rounds: int, which: int) -> dict[str, float]:
    """Medians of a pass over all the weights, by side; which: of the clocks."""
    sides = {name: [make(weight) for weight in weights] for name, make in SIDES.items()}
    inputs = {weight.shape[1]: torch.randn(rows, weight.shape[1]).to(weight.dtype) for weight in weights}

    def go(name: str) -> Callable[[], None]:
        def work() -> None:
            for multiply, weight in zip(sides[name], weights, strict=True):
                multiply(inputs[weight.shape[1]])

        return work

    times: dict[str, list[float]] = {name: [] for name in sides}
    for i in range(rounds + 1):
        for name in sides:
            spent = clocks(go(name))[which]
            if i:
                times[name].append(spent)
    return {name: statistics.median(values) for name, values in times.items()}


def cases(args: argparse.Namespace) -> Iterator[tuple[str, str, list[torch.Tensor]]]:
    shapes = MODELS[args.model]
    for dtype in args.dtypes.split(","):
        kind = getattr(torch, dtype)
        layers = [
            torch.randn(shape).mul_(shape[1] ** -0.5).to(kind)
            for _ in range(shapes.num_layers)
            for shape in shapes.linears
        ]
        yield dtype, "layers", layers
        yield dtype, "head", [torch.randn(shapes.head).mul_(0.03).to(kind)]


def main() -> None:
    args = parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    print(machine(), f"\n{args.model}, {args.threads} threads, Intel: {cpu_is_intel()}, {args.clock} time, us")
    print(f"{'':24}", *(f"{name:>10}" for name in SIDES), f"{'ratio':>8}")
    with torch.inference_mode():
        for dtype, title, weights in cases(args):
            for rows in map(int, args.rows.split(",")):
                if title == "head" and rows > 32:
                    continue
                rounds = max(3, args.rounds // (1 + rows // 16))
                result = compare(weights, rows, rounds, 0 if args.clock == "cpu" else 1)
                best = min(value for name, value in result.items() if name != "ours")
                numbers = [f"{value:10.0f}" for value in result.values()]
                print(f"{dtype:9}{title:7}M = {rows:<5}", *numbers, f"{best / result['ours']:8.2f}", flush=True)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="smollm2-135m")
    parser.add_argument("--dtypes", default="bfloat16,float32")
    parser.add_argument("--rows", default="1,8,32,256,1024")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--clock", choices=["cpu", "wall"], default="wall")
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""What the GPU benchmarks share: options, an LLM with random weights, and a log of its steps."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from floors import H200, Floors
from models import SHAPES, hf_config, write_model
from report import console
from workloads import NUM_IDS, Workload

from minisgl import LLM, SamplingParams
from minisgl.core import BatchOutput, ForwardInput
from minisgl.models.config import ModelConfig

WARM_UP = Workload([[7 + i] * (16 + 24 * i) for i in range(24)], [8 + i for i in range(24)])
MIN_CONTEXT = 1024  # which holds every request of WARM_UP


# ---- options


def parser(description: str | None, model: str) -> argparse.ArgumentParser:
    """With the options that every benchmark has; those left out leave the engine's default, but for --max-extend."""
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--model", default=model, choices=SHAPES, help=f"shape of the random weights ({model})")
    options.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    options.add_argument("--backend", help="attention backend")
    options.add_argument("--page-size", type=int)
    options.add_argument("--cuda-graph-max-bs", type=int, help="largest batch captured as a CUDA graph; 0: none")
    options.add_argument("--max-extend", type=int, default=16_384, help="prompt tokens a batch (16384)")
    options.add_argument("--memory-ratio", type=float)
    options.add_argument("--tensor-parallel-size", type=int, help="GPUs that share the model")
    options.add_argument("--no-overlap", action="store_true")
    options.add_argument("--no-shared-prefix", action="store_true")
    options.add_argument("--json", type=Path, help="write everything to this file, too")
    return options


def engine_config(args: argparse.Namespace) -> dict[str, Any]:
    """The keywords of an LLM that the options stand for."""
    config = {
        "device": args.device,
        "attention_backend": args.backend,
        "page_size": args.page_size,
        "cuda_graph_max_bs": args.cuda_graph_max_bs,
        "max_extend_tokens": args.max_extend,
        "memory_ratio": args.memory_ratio,
        "tensor_parallel_size": args.tensor_parallel_size,
        "overlap": "off" if args.no_overlap else None,
        "shared_prefix": "off" if args.no_shared_prefix else None,
    }
    return {name: value for name, value in config.items() if value is not None}


def num_ids(name: str) -> int:
    """How many different token ids a workload for this model may use."""
    return min(NUM_IDS, int(hf_config(name)["vocab_size"]))


def floors_of(name: str) -> Floors:
    return Floors(ModelConfig.from_hf(hf_config(name)), H200)


# ---- running


@contextmanager
def open_llm(name: str, **config: Any) -> Iterator[LLM]:
    """An LLM of the named shape with random weights; on a GPU, kernels that are compiled at first use are compiled."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        llm = LLM(str(write_model(name, Path(folder))), load_format="dummy", **config)
    console.print(f"{name} loaded in {time.perf_counter() - started:.1f} s: {llm.spec}")
    with llm:
        if llm.spec.device.type == "cuda":
            run(llm, WARM_UP)
            torch.cuda.reset_peak_memory_stats()  # loading has one of its own
        yield llm


def run(llm: LLM, workload: Workload, temperature: float = 0.6) -> tuple[float, list[list[int]]]:
    """Wall seconds from submission to the last token, and the tokens of each prompt."""
    params = [
        SamplingParams(temperature=temperature, ignore_eos=True, max_tokens=length) for length in workload.output_lens
    ]
    started = time.perf_counter()
    outputs = llm.generate(workload.prompts, params, use_tqdm=False)
    seconds = time.perf_counter() - started
    token_ids = [output["token_ids"] for output in outputs]
    assert [len(ids) for ids in token_ids] == workload.output_lens, "some request ended early"
    return seconds, token_ids


@dataclass(slots=True)
class Step:
    """started: when its forward was called. launch_s: until that returned. waited_s: for a result, before the next."""

    started: float
    launch_s: float
    num_reqs: int
    num_tokens: int
    waited_s: float = 0.0

    @property
    def is_decode(self) -> bool:
        """Whether every request computed one token."""
        return self.num_tokens == self.num_reqs


class StepLog:
    """The steps of an LLM while it is watched. last_decode: what was launched last, by its number of requests."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.last_decode: dict[int, ForwardInput] = {}

    @contextmanager
    def watch(self, llm: LLM) -> Iterator[StepLog]:
        """Every batch passes through `llm._forward`, and `result` of its output is where the loop waits for it."""
        forward = llm._forward
        timed: dict[type, Callable[[Any], Any]] = {}

        def watched(forward_input: ForwardInput) -> BatchOutput:
            batch, started = forward_input.batch, time.perf_counter()
            output = forward(forward_input)
            step = Step(started, time.perf_counter() - started, len(batch.reqs), batch.num_tokens)
            self.steps.append(step)
            if step.is_decode:
                self.last_decode[step.num_reqs] = forward_input
            if type(output) not in timed:
                timed[type(output)] = type(output).result
                type(output).result = self._timed(type(output).result)  # type: ignore[method-assign]
            return output

        llm._forward = watched  # type: ignore[method-assign]
        try:
            yield self
        finally:
            llm._worker.drain()
            del llm._forward
            for output_type, result in timed.items():
                output_type.result = result  # type: ignore[attr-defined]

    def host_s(self, num_reqs: int | None = None) -> list[float]:
        """Seconds of each step in which the loop's thread did not wait for the device. num_reqs: decodes of so many."""
        pairs = self._pairs() if num_reqs is None else self._decodes(num_reqs)
        return [b.started - a.started - a.waited_s for a, b in pairs]

    def decode_s(self, num_reqs: int) -> list[float]:
        """Seconds from one decode step of so many requests to the next."""
        return [b.started - a.started for a, b in self._decodes(num_reqs)]

    def _decodes(self, num_reqs: int) -> Iterator[tuple[Step, Step]]:
        for a, b in self._pairs():
            if a.is_decode and b.is_decode and a.num_reqs == b.num_reqs == num_reqs:
                yield a, b

    def _pairs(self) -> Iterator[tuple[Step, Step]]:
        return zip(self.steps, self.steps[1:], strict=False)

    def _timed(self, result: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def timed(output: Any) -> Any:
            started = time.perf_counter()
            answer = result(output)
            self.steps[-1].waited_s += time.perf_counter() - started
            return answer

        return timed


def replay_s(llm: LLM, forward_input: ForwardInput, num_steps: int) -> float:
    """Seconds a step takes the engine alone, when the same batch is launched again and again, one step ahead.

    Nothing else may run. Each launch writes to the slots of the last tokens, which are other ones then: what is cached
    of these requests is worth nothing afterwards.
    """

    def replay() -> float:
        forward = llm._parts.forward
        output = forward(forward_input)
        output.result()
        started = time.perf_counter()
        for _ in range(num_steps):
            following = forward(forward_input)
            output.result()
            output = following
        output.result()
        return (time.perf_counter() - started) / num_steps

    return llm._worker.call(replay)

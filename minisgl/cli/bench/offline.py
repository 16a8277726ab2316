"""Throughput of an `LLM` in this process: prompts of random token ids, all at once, and what came of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from minisgl.core import BatchOutput, ForwardInput, SamplingParams

if TYPE_CHECKING:
    from minisgl.llm import LLM
    from minisgl.llm.stream import Output

Prompts = list[list[int]]
FIRST_ID = 3  # the lowest ids are often those that begin and end texts
WARM_UP = 8  # tokens


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What is asked, the same for the same seed. Lengths in tokens; num_groups: different prefixes."""

    dataset: str
    num_prompts: int
    input_len: int
    output_len: int
    prefix_len: int
    num_groups: int
    seed: int

    def prompts(self, vocab_size: int) -> Prompts:
        return DATASETS[self.dataset](self, np.random.default_rng(self.seed), vocab_size)


def random_ids(rng: np.random.Generator, vocab_size: int, num: int, length: int) -> Prompts:
    """`num` prompts of `length` tokens."""
    ids: Prompts = rng.integers(FIRST_ID, vocab_size, (num, length)).tolist()
    return ids


def random_prompts(workload: Workload, rng: np.random.Generator, vocab_size: int) -> Prompts:
    """Prompts that share nothing."""
    return random_ids(rng, vocab_size, workload.num_prompts, workload.input_len)


def shared_prefix(workload: Workload, rng: np.random.Generator, vocab_size: int) -> Prompts:
    """Prompts behind a few long prefixes, in random order."""
    prefixes = random_ids(rng, vocab_size, workload.num_groups, workload.prefix_len)
    ends = random_ids(rng, vocab_size, workload.num_prompts, workload.input_len)
    return [prefixes[rng.integers(workload.num_groups)] + end for end in ends]


DATASETS: dict[str, Callable[[Workload, np.random.Generator, int], Prompts]] = {
    "random": random_prompts,
    "shared-prefix": shared_prefix,
}


@dataclass(frozen=True)
class Step:
    """One batch: when it was launched, in seconds from the beginning, and the tokens that it computes."""

    at_s: float
    num_prompt_tokens: int
    num_decodes: int


@dataclass(frozen=True)
class Run:
    """outputs: in the order of the prompts. computed_tokens: of prompts, those of retracted requests again."""

    outputs: list[Output]
    wall_s: float
    steps: list[Step]
    computed_tokens: int
    num_retracted: int

    @property
    def token_ids(self) -> list[list[int]]:
        return [output["token_ids"] for output in self.outputs]

    def summary(self) -> dict[str, Any]:
        prompt_tokens = sum(output["prompt_tokens"] for output in self.outputs)
        cached_tokens = sum(output["cached_tokens"] for output in self.outputs)
        output_tokens = sum(map(len, self.token_ids))
        return {
            "num_prompts": len(self.outputs),
            "wall_s": self.wall_s,
            "prompts_per_s": len(self.outputs) / self.wall_s,
            "output_tokens_per_s": output_tokens / self.wall_s,
            "total_tokens_per_s": (prompt_tokens + output_tokens) / self.wall_s,
            "prompt_tokens": prompt_tokens,
            "cached_tokens": cached_tokens,
            "cached_share": cached_tokens / max(1, prompt_tokens),
            "computed_tokens": self.computed_tokens,
            "output_tokens": output_tokens,
            "num_steps": len(self.steps),
            "num_retracted": self.num_retracted,
        }


def measure(llm: LLM, prompts: Prompts, output_len: int) -> Run:
    """Answer all prompts at once, with nothing of them cached.

    Every answer has `output_len` tokens, unless the context or the pool holds fewer. ValueError for a prompt that can
    never run, and where one fails.
    """
    params = SamplingParams(max_tokens=output_len, ignore_eos=True)
    llm.generate([prompts[0][-WARM_UP:]], replace(params, max_tokens=WARM_UP))
    llm.purge_cache()
    before = llm.stats()
    steps: list[Step] = []
    begin = time.perf_counter()
    with _watched(llm, steps, begin):
        outputs = llm.generate(prompts, params)
        wall_s = time.perf_counter() - begin
    for output in outputs:
        if "error" in output:
            raise ValueError(f"a prompt failed: {output['error']}")
    computed, retracted = (llm.stats()[name] - before[name] for name in ("computed_tokens", "num_retracted"))
    return Run(outputs, wall_s, steps, computed, retracted)


@contextmanager
def _watched(llm: LLM, steps: list[Step], begin: float) -> Iterator[None]:
    """Every batch that is launched meanwhile becomes one of `steps`."""
    forward = llm._forward

    def watch(forward_input: ForwardInput) -> BatchOutput:
        batch = forward_input.batch
        num_decodes = batch.num_decodes
        steps.append(Step(time.perf_counter() - begin, batch.num_tokens - num_decodes, num_decodes))
        return forward(forward_input)

    llm._forward = watch  # type: ignore[method-assign]
    try:
        yield
    finally:
        del llm._forward

"""What the GPU benchmarks ask for: prompts in token ids, and how many tokens each is to get.

Shape letters: none; a prompt is a list of ids.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np

Prompt = list[int]
NUM_IDS = 10_000  # ids are below this, as in the predecessor's workload


@dataclass(frozen=True)
class Workload:
    """output_lens: tokens to generate, end tokens ignored, one number for each prompt."""

    prompts: list[Prompt]
    output_lens: list[int]

    @property
    def num_output_tokens(self) -> int:
        return sum(self.output_lens)

    @property
    def num_prompt_tokens(self) -> int:
        return sum(map(len, self.prompts))


def offline(num_seqs: int = 256, max_len: int = 1024, round_: int = 0, num_ids: int = NUM_IDS) -> Workload:
    """The predecessor's: lengths in [100, max_len], in and out, from seed 0. Rounds differ in their ids alone."""
    rng, least = random.Random(0), min(100, max_len)
    prompts = [
        [rng.randint(0, NUM_IDS) for _ in range(rng.randint(least, max_len))] for _ in range(num_seqs)
    ]  # drawn in this order, the lengths are those that others measured
    output_lens = [rng.randint(least, max_len) for _ in range(num_seqs)]
    if round_ or num_ids != NUM_IDS:
        ids = np.random.default_rng(round_)
        prompts = [ids.integers(0, num_ids, len(prompt)).tolist() for prompt in prompts]
    return Workload(prompts, output_lens)


def shared_system(
    rng: np.random.Generator, groups: int, questions: int, shared: int, own: int, out: int, num_ids: int = NUM_IDS
) -> Workload:
    """`questions` prompts behind each of `groups` system prompts, in random order, as they would come from users."""
    prompts = []
    for system in rng.integers(0, num_ids, (groups, shared)).tolist():
        prompts += [system + question for question in rng.integers(0, num_ids, (questions, own)).tolist()]
    order = rng.permutation(len(prompts)).tolist()
    return Workload([prompts[i] for i in order], [out] * len(prompts))


def few_shot(
    rng: np.random.Generator, lens: tuple[int, ...], fans: tuple[int, ...], out: int, num_ids: int = NUM_IDS
) -> Workload:
    """A tree: lens[k] tokens at depth k, fans[k] branches below each node of depth k; a prompt for each leaf."""
    prompts: list[Prompt] = [rng.integers(0, num_ids, lens[0]).tolist()]
    for length, fan in zip(lens[1:], fans, strict=True):
        prompts = [prompt + tail for prompt in prompts for tail in rng.integers(0, num_ids, (fan, length)).tolist()]
    order = rng.permutation(len(prompts)).tolist()
    return Workload([prompts[i] for i in order], [out] * len(prompts))


@dataclass
class Chats:
    """Conversations turn by turn: a prompt is all that was said, answers included, and a new question."""

    rng: np.random.Generator
    num_chats: int
    system: int
    question: int
    out: int
    num_ids: int = NUM_IDS
    histories: list[Prompt] = field(init=False)

    def __post_init__(self) -> None:
        shared = self.rng.integers(0, self.num_ids, self.system).tolist()
        self.histories = [[*shared] for _ in range(self.num_chats)]

    def next_turn(self) -> Workload:
        """The prompts of all chats with a new question each."""
        questions = self.rng.integers(0, self.num_ids, (self.num_chats, self.question)).tolist()
        self.histories = [history + question for history, question in zip(self.histories, questions, strict=True)]
        return Workload(self.histories, [self.out] * self.num_chats)

    def answered(self, answers: list[Prompt]) -> None:
        self.histories = [history + answer for history, answer in zip(self.histories, answers, strict=True)]

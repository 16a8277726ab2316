"""What a benchmark says to a server: conversations made of short English words, always the same for the same seed.

One word is about one token for any tokenizer; the report counts the tokens that the server counted.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_WORD_LIST = (
    "time year people way day man thing woman life child world school state family student group country problem hand "
    "part place case week company system program question work government number night point home water room mother "
    "area money story fact month lot right study book eye job word business issue side kind head house service friend "
    "father power hour game line end member law car city community name president team minute idea body back parent "
    "face level office door health person art war history party result change morning reason research girl guy moment "
    "air teacher force education"
)
WORDS = _WORD_LIST.split()


@dataclass(frozen=True)
class Conversation:
    """Turns that follow one another: each is sent with the answers to those before it. system: "" for none."""

    system: str
    questions: tuple[str, ...]


@dataclass(frozen=True)
class Shape:
    """Sizes in words. num_groups: different system prompts. num_turns: of one conversation."""

    num_requests: int
    input_len: int
    prefix_len: int
    num_groups: int
    num_turns: int
    seed: int


def random_prompts(shape: Shape) -> list[Conversation]:
    """Prompts that share nothing."""
    rng = random.Random(shape.seed)
    return [Conversation("", (_text(rng, shape.input_len),)) for _ in range(shape.num_requests)]


def shared_prefix(shape: Shape) -> list[Conversation]:
    """Questions below a few long system prompts, in random order."""
    rng = random.Random(shape.seed)
    systems = [_text(rng, shape.prefix_len) for _ in range(shape.num_groups)]
    return [Conversation(rng.choice(systems), (_text(rng, shape.input_len),)) for _ in range(shape.num_requests)]


def multi_turn(shape: Shape) -> list[Conversation]:
    """Conversations below one system prompt; the last may be shorter, so that all turns are `num_requests`."""
    rng = random.Random(shape.seed)
    system = _text(rng, shape.prefix_len)
    return [
        Conversation(system, tuple(_text(rng, shape.input_len) for _ in range(num_turns)))
        for num_turns in _split(shape.num_requests, shape.num_turns)
    ]


DATASETS: dict[str, Callable[[Shape], list[Conversation]]] = {
    "random": random_prompts,
    "shared-prefix": shared_prefix,
    "multi-turn": multi_turn,
}


def _text(rng: random.Random, num_words: int) -> str:
    return " ".join(rng.choices(WORDS, k=num_words))


def _split(total: int, size: int) -> Iterator[int]:
    while total > 0:
        yield min(total, size)
        total -= size

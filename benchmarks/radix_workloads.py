"""Prompts for `bench_radix.py`: five ways in which servers use a prefix cache. Seeded, so every run has the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

SEED = 20261129
VOCAB = 150_000

Int32Array = npt.NDArray[np.int32]


def rng(*stream: int) -> np.random.Generator:
    """A generator of its own for each `stream`."""
    return np.random.default_rng([SEED, *stream])


def tokens(r: np.random.Generator, num_tokens: int) -> Int32Array:
    return r.integers(0, VOCAB, num_tokens, dtype=np.int32)


def different_starts(r: np.random.Generator, rows: Int32Array, group: int) -> Int32Array:
    """`rows` [N, tokens], with first tokens that differ within each `group` rows: no two share a page, of any size."""
    for start in range(0, len(rows), group):
        rows[start : start + group, 0] = r.permutation(VOCAB)[: len(rows[start : start + group])]
    return rows


def long_prompt() -> Int32Array:
    """W1: one prompt of 100,000 tokens."""
    return tokens(rng(1), 100_000)


@dataclass(frozen=True)
class Chat:
    """W2: a chat's whole history; turn i sends the first `ends[i]` tokens of it."""

    history: Int32Array
    ends: list[int]


def multi_turn_chats(num_chats: int, num_turns: int) -> list[Chat]:
    """W2: chats that share a system prompt of 2,000 tokens and grow by 200 to 600 a turn."""
    system = tokens(rng(2), 2000)
    growth = rng(2, 1).integers(200, 601, (num_chats, num_turns))
    return [
        Chat(np.concatenate([system, tokens(rng(2, 2, i), int(turns.sum()))]), (2000 + np.cumsum(turns)).tolist())
        for i, turns in enumerate(growth)
    ]


def one_leaf_chats(num_chats: int) -> Iterator[Int32Array]:
    """W3: prompts of 64 tokens shared by 100 chats and 32 of their own, in random order; each becomes one leaf."""
    r = rng(3)
    groups = different_starts(r, tokens(r, num_chats // 100 * 64).reshape(-1, 64), num_chats)
    tails = different_starts(r, tokens(r, num_chats * 32).reshape(-1, 32), 100)
    for chat in r.permutation(num_chats).tolist():
        yield np.concatenate([groups[chat // 100], tails[chat]])


class BushyTree:
    """W4: `fan_out` children a node, three levels of edges of 16 tokens below the root."""

    def __init__(self, fan_out: int) -> None:
        r = rng(4)
        self.fan_out = fan_out
        self.num_leaves = fan_out**3
        self.levels = [
            different_starts(r, tokens(r, fan_out**depth * 16).reshape(-1, 16), fan_out) for depth in (1, 2, 3)
        ]

    def path(self, leaf: int) -> Int32Array:
        """[48] tokens that lead to leaf number `leaf`."""
        above = (leaf // self.fan_out**2, leaf // self.fan_out, leaf)
        return np.concatenate([level[i] for level, i in zip(self.levels, above, strict=True)])

    def shuffled(self) -> Iterator[Int32Array]:
        """The path of every leaf, in random order."""
        return map(self.path, rng(4, 1).permutation(self.num_leaves).tolist())

    def lookups(self, num_lookups: int) -> list[Int32Array]:
        return [self.path(leaf) for leaf in rng(4, 2).integers(0, self.num_leaves, num_lookups).tolist()]


@dataclass(frozen=True)
class MixShape:
    """W5: how many different prompts there are, how long they and the system prompts at their start are."""

    stream: int
    num_prompts: int
    prompt_len: tuple[int, int]
    system_len: tuple[int, int]


LONG_MIX = MixShape(5, 20_000, (500, 4000), (100, 400))
SHORT_MIX = MixShape(6, 100_000, (50, 400), (16, 48))


def zipf(n: int) -> npt.NDArray[np.float64]:
    """Probabilities of n things, the k-th in proportion to 1 / k."""
    weights = 1.0 / np.arange(1, n + 1)
    return weights / weights.sum()


def zipf_mix(shape: MixShape, num_requests: int) -> Iterator[Int32Array]:
    """W5: requests drawn by popularity from prompts that start with one of 50 system prompts, drawn the same way."""
    r = rng(shape.stream)
    systems = [tokens(r, int(n)) for n in r.integers(shape.system_len[0], shape.system_len[1] + 1, 50)]
    which = r.choice(50, shape.num_prompts, p=zipf(50)).tolist()
    lens = r.integers(shape.prompt_len[0], shape.prompt_len[1] + 1, shape.num_prompts).tolist()
    prompts = [
        np.concatenate([systems[i], tokens(r, max(16, n - len(systems[i])))]) for i, n in zip(which, lens, strict=True)
    ]
    order = r.permutation(shape.num_prompts)
    for i in order[r.choice(shape.num_prompts, num_requests, p=zipf(shape.num_prompts))].tolist():
        yield prompts[i]


class FreePages:
    """A stack of page numbers, beside which the cache runs out of memory."""

    def __init__(self, num_pages: int) -> None:
        self._stack = np.arange(num_pages, dtype=np.int32)
        self.num_free = num_pages

    def take(self, num_pages: int) -> Int32Array:
        self.num_free -= num_pages
        return self._stack[self.num_free : self.num_free + num_pages].copy()

    def give(self, pages: Int32Array) -> None:
        self._stack[self.num_free : self.num_free + len(pages)] = pages
        self.num_free += len(pages)

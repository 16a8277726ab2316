"""Eight clients chat for twenty turns each, on a pool that holds a third of their histories: what each cache computes.

    python benchmarks/bench_chats.py                          # about 3 minutes on 2 free cores
    python benchmarks/bench_chats.py --turns 4 --json result.json

SmolLM2-135M in float32, greedy. A client sends its next message when `--think` answers to others have come since its
own, and each message brings the whole history. First a run with room for all, which tells how long the histories get;
then the small pool, with the naive cache, with lru and no look-ahead, and as the defaults are (lru and look-ahead). All
answers must be those of the run with room for all, token for token.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from stopwatch import machine

from minisgl import AsyncLLM, SamplingParams
from minisgl.message import EngineStats

SHARE = 3  # the pool holds one part in so many of the histories
WORDS = ("river", "market", "winter", "garden", "letter", "engine", "bridge", "harbour", "silver", "forest", "lantern")
MODES: dict[str, dict[str, Any]] = {
    "naive": {"cache_type": "naive"},
    "lru": {"eviction": "lru", "lookahead": 0},
    "lru + look-ahead": {},
}


@dataclass(frozen=True)
class Plan:
    """think: answers to others that a client waits for. running: requests that run at once."""

    clients: int
    turns: int
    question_words: int
    answer_len: int
    think: int
    running: int

    def question(self, client: int, turn: int) -> str:
        words = random.Random(client * 1000 + turn).choices(WORDS, k=self.question_words)
        return f"Client {client} asks: what do you think of {' '.join(words)}?"


@dataclass
class Chats:
    """The clients' side: whose answers have come. answers: the token ids, by client and turn."""

    plan: Plan
    answers: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    history_len: int = 0
    num_open: int = 0
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def run(self, llm: AsyncLLM) -> None:
        self.num_open = self.plan.clients
        await asyncio.gather(*(self._talk(llm, client) for client in range(self.plan.clients)))

    async def _talk(self, llm: AsyncLLM, client: int) -> None:
        messages: list[dict[str, str]] = []
        params = SamplingParams(temperature=0, max_tokens=self.plan.answer_len)
        num_tokens = 0
        for turn in range(self.plan.turns):
            messages.append({"role": "user", "content": self.plan.question(client, turn)})
            out = await llm.chat(messages, params)
            messages.append({"role": "assistant", "content": out["text"]})
            self.answers[client, turn] = out["token_ids"]
            num_tokens = out["prompt_tokens"] + len(out["token_ids"])
            await self._think()
        self.history_len += num_tokens
        async with self.changed:
            self.num_open -= 1
            self.changed.notify_all()

    async def _think(self) -> None:
        """Until others have had their answers, or too few of them are left."""
        due = len(self.answers) + self.plan.think
        async with self.changed:
            self.changed.notify_all()
            await self.changed.wait_for(lambda: len(self.answers) >= due or self.num_open <= self.plan.think)


async def chat(plan: Plan, num_pages: int, config: dict[str, Any]) -> tuple[Chats, float, EngineStats]:
    """One cold run: the chats, wall seconds, and what the engine did."""
    async with AsyncLLM(
        "smollm2", dtype="float32", num_page_override=num_pages, max_running_req=plan.running, **config
    ) as llm:
        chats = Chats(plan)
        begin = time.perf_counter()
        await chats.run(llm)
        seconds = time.perf_counter() - begin
        return chats, seconds, await llm.client.stats()


def measure(plan: Plan, rounds: int) -> tuple[int, list[dict[str, Any]]]:
    """Tokens of all histories, and one row a run; AssertionError when an answer is not what it must be."""
    wanted = asyncio.run(chat(plan, 2**15, {}))[0]
    rows = []
    for _ in range(rounds):
        for mode, config in MODES.items():
            chats, seconds, stats = asyncio.run(chat(plan, wanted.history_len // SHARE, config))
            different = [place for place, answer in wanted.answers.items() if chats.answers[place] != answer]
            assert not different, f"{mode}: other answers than with room for all at (client, turn) {different}"
            rows.append(row(mode, seconds, stats))
    return wanted.history_len, rows


def row(mode: str, seconds: float, stats: EngineStats) -> dict[str, Any]:
    return {
        "cache": mode,
        "seconds": seconds,
        "prompt tokens computed": stats.computed_tokens,
        "hits, %": 100 * stats.hit_tokens / max(stats.queried_tokens, 1),
        "evicted": stats.evicted_tokens,
        "retracted": stats.num_retracted,
    }


def table(rows: list[dict[str, Any]], title: str) -> Table:
    out = Table(*rows[0], title=title)
    for each in rows:
        out.add_row(*(f"{value:.1f}" if isinstance(value, float) else f"{value}" for value in each.values()))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--question-words", type=int, default=12)
    parser.add_argument("--answer-len", type=int, default=6)
    parser.add_argument("--think", type=int, default=2)
    parser.add_argument("--running", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    plan = Plan(args.clients, args.turns, args.question_words, args.answer_len, args.think, args.running)
    history_len, rows = measure(plan, args.rounds)
    title = f"{plan.clients} clients, {plan.turns} turns, {history_len} tokens in all, a pool of {history_len // SHARE}"
    Console().print(table(rows, f"{title}; {machine()}"))
    if args.json:
        args.json.write_text(json.dumps({"machine": machine(), "history_len": history_len, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()

"""How a peer is driven: requests come as lines of JSON on stdin, answers go as lines of JSON to the old stdout.

Written for any Python that a peer lives in: nothing but the standard library. The first line says what was loaded, once
it has been; each further one answers a request.

    <- {"about": "vLLM 0.32.0, bfloat16", "kv_item_bytes": 2, "kv_pool_tokens": null}
    -> {"prompts": [[5, 5, 5]], "out": 4}
    <- {"seconds": 0.12, "tokens": [[9, 9, 9, 9]]}

A line with "error" instead ends the conversation.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

Prompts = list[list[int]]


class Engine(Protocol):
    """One engine with one model, loaded.

    about: name, version and what it computes in. kv_item_bytes: of one number of a key or value. kv_pool_tokens: how
    many tokens its memory for them holds, or None where only what was computed takes room.
    """

    about: str
    kv_item_bytes: int
    kv_pool_tokens: int | None

    def run(self, prompts: Prompts, out: int) -> Prompts:
        """All prompts, submitted together: `out` tokens for each, the likeliest ones, end tokens ignored."""


def options(description: str | None) -> argparse.ArgumentParser:
    """model: file or folder. tokens: least number of tokens that the KV pool should hold. seqs: prompts at once."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--seqs", type=int, required=True)
    return parser


def serve(load: Callable[[], Engine]) -> None:
    """Answer until stdin ends. What the peer prints goes to stderr, as its log."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def say(**answer: object) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    try:
        engine = load()
        say(about=engine.about, kv_item_bytes=engine.kv_item_bytes, kv_pool_tokens=engine.kv_pool_tokens)
        for line in sys.stdin:
            asked = json.loads(line)
            began = time.perf_counter()
            tokens = engine.run(asked["prompts"], asked["out"])
            say(seconds=time.perf_counter() - began, tokens=tokens)
    except Exception as error:
        say(error=f"{type(error).__name__}: {error}")
        raise

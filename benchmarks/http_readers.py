"""The clients of bench_http, in a process of their own: open all streams, and note what came when.

Bytes are only kept while they come; they are read afterwards, so that the readers take as little as they can from the
machine that they share with the server.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from collections.abc import Iterator

import numpy as np
import uvloop

from minisgl.cli.address import Address
from minisgl.cli.bench.connections import Connections

Parts = list[tuple[float, bytes]]  # when (time.monotonic) which bytes of a body came


async def read_all(url: str, bodies: list[bytes]) -> list[tuple[int, Parts]]:
    """Status and body of every stream; they are opened 50 at a time."""
    opening = asyncio.Semaphore(50)
    async with Connections(Address.of(url), {}) as connections:
        return await asyncio.gather(*(read(connections, body, opening) for body in bodies))


async def read(connections: Connections, body: bytes, opening: asyncio.Semaphore) -> tuple[int, Parts]:
    parts: Parts = []
    async with opening:
        task = asyncio.ensure_future(
            connections.request("POST", "/v1/completions", body, lambda data: parts.append((time.monotonic(), data)))
        )
        await asyncio.sleep(0.01)  # the server sees a crowd, not a wall
    return await task, parts


def arrivals(parts: Parts, expected: str) -> list[float]:
    """When each character of `expected` was there. ValueError when the stream is not just that, in order, and whole."""
    times, position, is_done, reason = [0.0] * len(expected), 0, False, None
    for at, data in events(parts):
        if data == b"[DONE]":
            is_done = True
            continue
        (choice,) = json.loads(data)["choices"]
        text = choice["text"]
        if expected[position : position + len(text)] != text or is_done:
            raise ValueError(f"{text!r} came at {position}, where {expected[position : position + 20]!r} goes on")
        times[position : position + len(text)] = [at] * len(text)
        position += len(text)
        reason = choice["finish_reason"] or reason
    if position != len(expected) or reason != "length" or not is_done:
        raise ValueError(f"{position} of {len(expected)} characters, finish_reason {reason}, done: {is_done}")
    return times


def events(parts: Parts) -> Iterator[tuple[float, bytes]]:
    """The data of each event, and when its last byte came."""
    rest = b""
    for at, data in parts:
        *whole, rest = (rest + data).split(b"\n\n")
        for event in whole:
            yield at, event.removeprefix(b"data: ")


def main() -> None:
    """argv: url, JSON of the plan, a file for when each token came. Prints a JSON object."""
    url, plan, file = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
    bodies = [
        json.dumps({**plan["body"], "prompt": [number + plan["first_id"]]}).encode() for number in range(plan["num"])
    ]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        answers = runner.run(read_all(url, bodies))
    expected = "".join(plan["texts"])
    ends = [end - 1 for end in itertools.accumulate(map(len, plan["texts"]))]
    times, errors = np.zeros((plan["num"], len(ends))), []
    for number, (status, parts) in enumerate(answers):
        try:
            if status != 200:
                raise ValueError(f"HTTP {status}: {b''.join(data for _, data in parts)[:200]!r}")
            times[number] = np.array(arrivals(parts, expected))[ends]
        except ValueError as error:
            errors.append(f"stream {number}: {error}")
    np.save(file, times)
    num_bytes = sum(len(data) for _, parts in answers for _, data in parts)
    print(json.dumps({"errors": errors, "num_parts": sum(len(parts) for _, parts in answers), "num_bytes": num_bytes}))


if __name__ == "__main__":
    main()

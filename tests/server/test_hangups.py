"""Clients that leave, or stop reading, in front of a whole server: both processes, with a tiny model."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.live_server import LiveServer, live_server
from support.tiny_model import make_tiny_model

NUM_PAGES, PAGE_SIZE = 4096, 4
FLAGS = {
    "--num-pages": NUM_PAGES,
    "--page-size": PAGE_SIZE,
    "--max-running": 20,
    "--max-queued": 100,
    "--max-extend-tokens": 32,  # a prompt of 400 is thirteen chunks: time enough to leave in the middle of it
    "--dtype": "float32",
    "--served-model-name": "tiny",
}
AT_ONCE = 50
WHEN = ("at once", "after a moment", "after a piece")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    folder = make_tiny_model(tmp_path_factory.mktemp("tiny"))
    flags = [str(word) for flag in FLAGS.items() for word in flag]
    with live_server("--model", str(folder), *flags, log=folder / "log") as server:
        yield server


@pytest.mark.parametrize("num", [200, pytest.param(500, marks=pytest.mark.nightly)])
def test_hundreds_of_hangups_in_every_phase_leave_nothing_behind(server: LiveServer, num: int):
    rng = random.Random(0)
    asyncio.run(hang_up(server, 100, rng))  # buffers and pools grow to their size
    wait_until_at_rest(server)
    before, aborted = memory_of(server), num_aborted(server)
    asyncio.run(hang_up(server, num, rng))
    wait_until_at_rest(server)
    assert num_aborted(server) - aborted > num * 0.4  # the others left before they were let in, or got all
    for process, num_bytes in memory_of(server).items():
        assert num_bytes - before[process] < 12 * 2**20, (before, memory_of(server))
    check_ordinary_answer(server)
    assert "Traceback" not in server.log.read_text()


def test_a_reader_that_stops_holds_up_nobody_and_little_memory(server):
    before = memory_of(server)
    with connect(server, receive_buffer=2048) as reader:
        body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 450, "ignore_eos": True, "n": 16}
        body |= {"stream": True, "logprobs": True, "top_logprobs": 20}
        reader.sendall(http_request("/v1/chat/completions", body))  # some ten megabytes would come
        for _ in range(10):
            check_ordinary_answer(server)
        wait_until_at_rest(server)  # all of it is generated, and none of it read
        for process, num_bytes in memory_of(server).items():
            assert num_bytes - before[process] < 64 * 2**20
        assert reader.recv(15) == b"HTTP/1.1 200 OK"
    check_ordinary_answer(server)


def test_a_reader_that_goes_on_after_a_pause_misses_nothing(server):
    body = {"prompt": "x", "max_tokens": 400, "ignore_eos": True, "logprobs": 5, "temperature": 0}
    _, whole = server.post("/v1/completions", body)
    with connect(server, receive_buffer=2048) as reader:
        reader.sendall(http_request("/v1/completions", {**body, "stream": True}, close=True))
        time.sleep(1)
        received = b"".join(iter(lambda: reader.recv(65536), b""))
    events = [json.loads(line[6:]) for line in unchunked(received).split(b"\n") if line.startswith(b"data: {")]
    assert "".join(event["choices"][0]["text"] for event in events) == whole["choices"][0]["text"]
    logprobs = [event["choices"][0]["logprobs"] for event in events]
    tokens = [token for entry in logprobs if entry for token in entry["tokens"]]
    assert tokens == whole["choices"][0]["logprobs"]["tokens"]


def test_two_salts_never_share_a_page(server):
    prompt = "a text that both of them send, long enough for many pages " * 4
    asked = [("public", ""), ("one", "tenant-1"), ("other", "tenant-2"), ("glued", "tenant-12"), ("prompt", prompt[:4])]
    for name, salt in asked:
        usage, computed = ask_with_salt(server, prompt, salt)
        assert usage["prompt_tokens_details"]["cached_tokens"] == 0, name
        assert computed == usage["prompt_tokens"], name  # as much work as without a cache: no time to be read off
    for name, salt in asked:
        usage, computed = ask_with_salt(server, prompt, salt)
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        assert cached >= usage["prompt_tokens"] - PAGE_SIZE, name
        assert computed == usage["prompt_tokens"] - cached, name


def ask_with_salt(server: LiveServer, prompt: str, salt: str) -> tuple[dict[str, Any], int]:
    """Usage, and how many prompt tokens went through the model."""
    before = engine_stats(server)["computed_tokens"]
    body = {"prompt": prompt, "max_tokens": 1, **({"cache_salt": salt} if salt else {})}
    status, answer = server.post("/v1/completions", body)
    assert status == 200, answer
    return answer["usage"], engine_stats(server)["computed_tokens"] - before


async def hang_up(server: LiveServer, num: int, rng: random.Random) -> None:
    """So many requests, AT_ONCE together, of which only some run while others wait."""
    for _ in range(num // AT_ONCE):
        await asyncio.gather(*(one_hangup(server, random.Random(rng.random())) for _ in range(AT_ONCE)))


async def one_hangup(server: LiveServer, rng: random.Random) -> None:
    """Ask, and leave: politely or with a reset."""
    prompt = "".join(rng.choices("abcdefgh ", k=rng.choice((3, 400))))
    body = {"prompt": prompt, "max_tokens": 100, "ignore_eos": True, "stream": rng.random() < 0.5}
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(http_request("/v1/completions", body))
    await writer.drain()
    when = rng.choice(WHEN)
    if when == "after a moment":
        await asyncio.sleep(rng.random() * 0.2)
    elif when == "after a piece":
        await reader.read(1)
    if rng.random() < 0.5:
        writer.transport.abort()
    writer.close()


def http_request(path: str, body: dict[str, Any], close: bool = False) -> bytes:
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n"
    return (head + ("Connection: close\r\n" if close else "") + "\r\n").encode() + data


def unchunked(response: bytes) -> bytes:
    """The body of a chunked response."""
    _, _, rest = response.partition(b"\r\n\r\n")
    parts = []
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        parts.append(rest[: int(size, 16)])
        rest = rest[int(size, 16) + 2 :]
    return b"".join(parts)


def connect(server: LiveServer, receive_buffer: int) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.settimeout(60)
    connection.connect(("127.0.0.1", server.port))
    return connection


def check_ordinary_answer(server: LiveServer) -> None:
    status, answer = server.post("/v1/completions", {"prompt": "hello", "max_tokens": 4, "ignore_eos": True})
    assert status == 200, answer
    assert answer["usage"]["completion_tokens"] == 4


def engine_stats(server: LiveServer) -> dict[str, Any]:
    status, info = server.get("/get_server_info")
    assert status == 200, info
    return info["internal_states"][0]


def num_aborted(server: LiveServer) -> int:
    return engine_stats(server)["num_aborted"]


def wait_until_at_rest(server: LiveServer) -> None:
    """Nothing runs or waits, and every page is free or cached; AssertionError when that does not come."""
    deadline = time.monotonic() + 60
    while True:
        stats = engine_stats(server)
        free = stats["free_pages"] * PAGE_SIZE + stats["evictable_tokens"]
        is_idle = not stats["num_running"] and not stats["num_waiting"] and not stats["protected_tokens"]
        if is_idle and free == NUM_PAGES * PAGE_SIZE:
            return
        assert time.monotonic() < deadline, f"not at rest: {stats}"
        time.sleep(0.05)


def memory_of(server: LiveServer) -> dict[int, int]:
    """Resident bytes of the server's process and of its engine."""
    pid = server.process.pid
    lists = Path(f"/proc/{pid}/task").glob("*/children")  # each thread has its own
    pids = [pid, *(int(child) for path in lists for child in path.read_text().split())]
    assert len(pids) == 2, pids
    return {pid: int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 for pid in pids}

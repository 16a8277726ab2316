"""A mixed load on a live server, and the memory of its processes meanwhile: by hand, in benchmarks and in long tests.

Clients in threads do at random what clients do: chats that grow, streams, requests that are abandoned, several choices
with seeds, log-probabilities, probes, purges, flushes, looks at the tree. A share of them brings a cache salt, a
priority and an id that nobody had before: whoever keeps something for each of these grows for ever.
"""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import torch

from minisgl.kvcache.pool import MHAKVCache
from minisgl.models.checkpoint import open_checkpoint
from minisgl.models.config import ModelConfig

MB = 1e6
TEXT = "the tree of prefixes keeps every page that was ever computed until somebody else needs its memory"
WORDS = TEXT.split(" ")
PATIENCE_S = 300.0  # for an answer: the machine may be busy with other things


@dataclass(frozen=True)
class Scale:
    """Of the requests. prompt_words: of a prompt, at most. chat_words: of a chat before a new one begins."""

    prompt_words: int
    chat_words: int
    max_tokens: int


SMOLLM2 = Scale(prompt_words=160, chat_words=600, max_tokens=24)
TINY = Scale(prompt_words=30, chat_words=100, max_tokens=24)


@dataclass(frozen=True)
class Reading:
    """at_s: since the load began. server, engine: resident bytes, the engine's without its KV pool."""

    at_s: float
    num_requests: int
    server: int
    engine: int


@dataclass
class Processes:
    """Of a server that runs on Linux. pool_bytes: of the engine's KV pool, which is resident once it was filled."""

    server: int
    engine: int
    pool_bytes: int = 0

    @classmethod
    def of(cls, server: int, pool_bytes: int) -> Processes:
        """The engine is the child of the server. AssertionError unless there is exactly one."""
        tasks = Path(f"/proc/{server}/task").iterdir()
        children = [int(word) for task in tasks for word in (task / "children").read_text().split()]
        assert len(children) == 1, f"process {server} has the children {children}"
        return cls(server, children[0], pool_bytes)

    def resident(self) -> tuple[int, int]:
        """Bytes of the server's process, and of the engine's without its KV pool."""
        return resident_bytes(self.server), resident_bytes(self.engine) - self.pool_bytes


def resident_bytes(pid: int) -> int:
    """Anonymous memory and shared libraries alike, as the kernel counts them just now (Linux)."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Rss:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"the kernel does not say what is resident of process {pid}")


def pool_bytes(model: Path, num_tokens: int, dtype: torch.dtype = torch.float32) -> int:
    """Of a KV pool of so many tokens, for the model in this folder or file."""
    config = ModelConfig.from_hf(open_checkpoint(model).hf_config())
    return num_tokens * MHAKVCache.bytes_per_page(config.num_kv_heads, config.num_layers, config.head_dim, 1, dtype)


def growth(readings: list[Reading], name: str, settled_s: float = 0.0) -> float:
    """Of the resident memory of `server` or `engine`: from what it was at first to the end, in parts of the former.

    settled_s: when "at first" is, in seconds after the first reading. Each is the median of a tenth of the readings:
    one alone may have met the tensors of a large batch.
    """
    sizes = [getattr(reading, name) for reading in readings if reading.at_s >= readings[0].at_s + settled_s]
    tenth = max(1, len(sizes) // 10)
    return median(sizes[-tenth:]) / median(sizes[:tenth]) - 1


@dataclass
class Soak:
    """Load on the server at `url`. errors: answers that no client should have had; the first of them."""

    url: str
    scale: Scale
    num_clients: int = 14
    seed: int = 0
    pause_s: float = 0.0  # of each client, between two requests
    done: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)

    def run(
        self,
        seconds: float,
        processes: Processes,
        every_s: float = 15.0,
        on_reading: Callable[[Reading], None] = lambda reading: None,
    ) -> list[Reading]:
        """Readings of the memory, the first one once every page of the pool has been used; then for `seconds`."""
        stop = threading.Event()
        clients = [_Client(self, number, stop) for number in range(self.num_clients)]
        threads = [threading.Thread(target=client.run, name=f"client-{client.number}") for client in clients]
        for thread in threads:
            thread.start()
        started = time.monotonic()
        readings: list[Reading] = []
        try:
            self._fill_the_pool()
            filled = time.monotonic()
            while True:
                now = time.monotonic()
                reading = Reading(now - started, self.done.total(), *processes.resident())
                readings.append(reading)
                on_reading(reading)
                if now - filled >= seconds or self.errors:
                    return readings
                time.sleep(min(every_s, max(0.0, filled + seconds - now)))
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    def _fill_the_pool(self) -> None:
        asker = _Client(self, -1, threading.Event())
        while not self.errors:
            info = asker.get("/get_server_info")
            if info["internal_states"][0]["evicted_tokens"] >= info["max_total_num_tokens"]:
                return
            time.sleep(0.2)


class _Client:
    """One of them, with a chat of its own and a connection that it keeps."""

    def __init__(self, soak: Soak, number: int, stop: threading.Event) -> None:
        self.number = number
        self._soak, self._scale, self._stop = soak, soak.scale, stop
        self._random = random.Random(f"{soak.seed}-{number}")
        self._chat: list[dict[str, str]] = []
        self._connection: http.client.HTTPConnection | None = None
        # How often each is done, in proportion.
        self._deeds: dict[Callable[[], None], int] = {
            self.chat: 24,
            self.stream: 16,
            self.abandon: 12,
            self.choices: 8,
            self.logprobs: 8,
            self.prompt_logprobs: 8,
            self.complete: 8,
            self.probe: 6,
            self.explain: 4,
            self.look: 6,
            self.purge: 3,
            self.flush: 1,
        }

    def run(self) -> None:
        deeds, weights = [*self._deeds], [*self._deeds.values()]
        try:
            while not self._stop.is_set() and not self._soak.errors:
                (deed,) = self._random.choices(deeds, weights)
                deed()
                self._soak.done[deed.__name__] += 1
                if self._soak.pause_s:
                    self._stop.wait(self._random.uniform(0, 2 * self._soak.pause_s))
        except Exception as error:
            self._soak.errors.append(f"client {self.number}: {type(error).__name__}: {error}")
        finally:
            self._close()

    # ---- what clients do

    def chat(self) -> None:
        """The next turn of a chat that grows."""
        self._chat.append({"role": "user", "content": self._words(self._scale.prompt_words // 4)})
        answer = self.post("/v1/chat/completions", messages=self._chat, max_tokens=self._tokens(), **self._traits())
        self._chat.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"] or "."})
        if sum(len(message["content"].split()) for message in self._chat) > self._scale.chat_words:
            self._chat.clear()

    def stream(self) -> None:
        for _ in self._events("/v1/chat/completions", messages=self._message(), max_tokens=self._tokens()):
            pass

    def abandon(self) -> None:
        """Leave after some tokens."""
        events = self._events("/v1/completions", prompt=self._prompt(), max_tokens=4 * self._scale.max_tokens)
        for _ in zip(range(self._random.randrange(6)), events, strict=False):
            pass
        self._close()

    def choices(self) -> None:
        seed = self._random.randrange(1 << 31)
        self.post("/v1/completions", prompt=self._prompt(), max_tokens=self._tokens(), n=2, seed=seed, **self._traits())

    def logprobs(self) -> None:
        wanted = {"logprobs": True, "top_logprobs": self._random.randrange(1, 20)}
        self.post("/v1/chat/completions", messages=self._message(), max_tokens=self._tokens(), **wanted)

    def prompt_logprobs(self) -> None:
        wanted = {"return_logprob": True, "logprob_start_len": 0, "top_logprobs_num": self._random.randrange(5)}
        sampling = {"max_new_tokens": self._tokens()}
        self.post("/generate", text=self._prompt(), sampling_params=sampling, rid=self._name(), **wanted)

    def complete(self) -> None:
        """With all that a sampler can be told."""
        told = {"temperature": 0.8, "top_p": 0.9, "top_k": 40, "frequency_penalty": 0.5, "stop": ["tree", "\n\n"]}
        self.post("/v1/completions", prompt=self._prompt(), max_tokens=self._tokens(), **told, **self._traits())

    def probe(self) -> None:
        self.post("/cache/probe", prompt=self._prompt())

    def explain(self) -> None:
        self.post("/cache/explain", prompt=self._prompt(), cache_salt=self._name())

    def look(self) -> None:
        paths = ("/inspect/tree", "/inspect/activity", "/inspect/requests", "/metrics", "/get_server_info")
        self.get(self._random.choice(paths))

    def purge(self) -> None:
        self.post("/cache/purge", prompt=" ".join(WORDS[:5]))

    def flush(self) -> None:
        self.post("/flush_cache")

    # ---- of which requests are made

    def _traits(self) -> dict[str, Any]:
        """What one in three brings that nobody had before."""
        if self._random.random() < 2 / 3:
            return {}
        return {"cache_salt": self._name(), "priority": self._random.randrange(-(1 << 20), 1 << 20), "explain": True}

    def _name(self) -> str:
        return f"{self._random.getrandbits(64):x}"

    def _tokens(self) -> int:
        return self._random.randint(1, self._scale.max_tokens)

    def _words(self, most: int) -> str:
        return " ".join(self._random.choices(WORDS, k=self._random.randint(1, max(1, most))))

    def _prompt(self) -> str:
        """Half of them begin as others do."""
        begin = " ".join(WORDS[: self._random.choice((0, 4, 8, 16))])
        return f"{begin} {self._words(self._scale.prompt_words)}"

    def _message(self) -> list[dict[str, str]]:
        return [{"role": "user", "content": self._prompt()}]

    # ---- over HTTP

    def get(self, path: str) -> Any:
        return self._read(self._open("GET", path, None), path)

    def post(self, path: str, **body: Any) -> Any:
        return self._read(self._open("POST", path, body), path)

    def _events(self, path: str, **body: Any) -> Iterator[bytes]:
        response = self._open("POST", path, {**body, "stream": True, **self._traits()})
        if response.status != 200:
            self._read(response, path)
        while line := response.readline():
            if line.startswith(b"data: "):
                yield line

    def _open(self, method: str, path: str, body: Any) -> http.client.HTTPResponse:
        if self._connection is None:
            split = urlsplit(self._soak.url)
            assert split.hostname is not None
            self._connection = http.client.HTTPConnection(split.hostname, split.port, timeout=PATIENCE_S)
        headers = {"Content-Type": "application/json", "X-Request-Id": self._name()}
        self._connection.request(method, path, None if body is None else json.dumps(body), headers)
        return self._connection.getresponse()

    def _read(self, response: http.client.HTTPResponse, path: str) -> Any:
        content = response.read()
        assert response.status == 200, f"{path} answered {response.status}: {content[:500]!r}"
        return json.loads(content) if response.headers.get_content_type() == "application/json" else content

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

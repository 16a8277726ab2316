"""llama.cpp's server, over HTTP on the loopback device, with a slot for every prompt of a line.

`--binary` is the server. Requests of a line go out at once, one thread each; a slot keeps what it computed last.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from protocol import Prompts, options, serve

SLOT_TOKENS = 1280  # the longest prompt of a line and its answer, rounded up


class LlamaServer:
    def __init__(self) -> None:
        parser = options(__doc__)
        parser.add_argument("--binary", type=Path, required=True)
        args = parser.parse_args()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self._url = f"http://127.0.0.1:{port}"
        self.kv_pool_tokens: int | None = args.seqs * SLOT_TOKENS
        numbers = {
            "--threads": args.threads,
            "--parallel": args.seqs,
            "--ctx-size": self.kv_pool_tokens,
            "--cache-ram": 0,
            "--port": port,
        }
        words = [str(word) for pair in numbers.items() for word in pair]
        self.process = subprocess.Popen(
            [args.binary, "--model", args.model, *words, "--no-kv-unified", "--no-webui"],
            stdout=sys.stderr,
            stderr=sys.stderr,
        )
        self._threads = ThreadPoolExecutor(args.seqs)
        self._wait()
        props = json.loads(urllib.request.urlopen(f"{self._url}/props").read())
        self.about = f"llama.cpp {props.get('build_info', '')}, weights of the file, float16 KV, {args.seqs} slots"
        self.kv_item_bytes = 2

    def _wait(self) -> None:
        while True:
            try:
                urllib.request.urlopen(f"{self._url}/health", timeout=5)
                return
            except OSError:
                if self.process.poll() is not None:
                    raise RuntimeError(f"the server ended with {self.process.returncode}") from None
                time.sleep(0.02)

    def run(self, prompts: Prompts, out: int) -> Prompts:
        return list(self._threads.map(lambda prompt: self._ask(prompt, out), prompts))

    def _ask(self, prompt: list[int], out: int) -> list[int]:
        body = {
            "prompt": prompt,
            "n_predict": out,
            "temperature": 0,
            "samplers": ["top_k"],
            "top_k": 1,
            "ignore_eos": True,
            "cache_prompt": True,
            "return_tokens": True,
        }
        request = urllib.request.Request(f"{self._url}/completion", json.dumps(body).encode())
        request.add_header("Content-Type", "application/json")
        tokens: list[int] = json.loads(urllib.request.urlopen(request).read())["tokens"]
        return tokens


def main() -> None:
    servers: list[LlamaServer] = []

    def load() -> LlamaServer:
        servers.append(LlamaServer())
        return servers[0]

    try:
        serve(load)
    finally:
        for server in servers:
            server.process.terminate()
            server.process.wait(30)


if __name__ == "__main__":
    main()

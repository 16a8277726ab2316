"""sglang-router in front of two servers. OTHER_URL is the second one."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

from checks import MODEL, QUESTION, check, main


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def router(*urls: str) -> Iterator[str]:
    """Its address, once it answers for both servers."""
    port = free_port()
    command = [sys.executable, "-m", "sglang_router.launch_router", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--policy", "round_robin", "--prometheus-port", str(free_port()), "--worker-urls", *urls]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        address = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + 60
        while not is_ready(address):
            assert process.poll() is None, f"the router ended with {process.returncode}"
            assert time.monotonic() < deadline, "the router does not get ready"
            time.sleep(0.2)
        yield address
    finally:
        process.terminate()
        process.wait(30)


def is_ready(address: str) -> bool:
    try:
        return urllib.request.urlopen(f"{address}/readiness", timeout=5).status == 200
    except OSError:
        return False


def post(url: str, body: dict) -> bytes:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return urllib.request.urlopen(request, timeout=60).read()


def refusal(url: str, body: dict) -> tuple[int, dict]:
    """Status and body of an answer that is an error."""
    try:
        post(url, body)
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())
    raise AssertionError(f"{body} was accepted")


def num_finished(url: str) -> int:
    """Requests that a server has answered, by its own count."""
    lines = urllib.request.urlopen(f"{url}/metrics", timeout=10).read().decode().splitlines()
    return int(
        sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("minisgl_request_success_total{"))
    )


@check
def both_servers_answer_through_the_router(url: str) -> None:
    other = os.environ["OTHER_URL"]
    before = num_finished(url), num_finished(other)
    chat = {"model": MODEL, "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 8, "temperature": 0}
    with router(url, other) as address:
        texts = {
            json.loads(post(f"{address}/v1/chat/completions", chat))["choices"][0]["message"]["content"]
            for _ in range(4)
        }
        stream = post(f"{address}/v1/chat/completions", {**chat, "stream": True}).decode()
        generate = json.loads(
            post(f"{address}/generate", {"text": "One, two,", "sampling_params": {"max_new_tokens": 4}})
        )
        models = json.loads(urllib.request.urlopen(f"{address}/v1/models", timeout=10).read())
    assert len(texts) == 1, texts
    assert stream.endswith("data: [DONE]\n\n"), stream
    assert generate["meta_info"]["completion_tokens"] == 4, generate
    assert MODEL in json.dumps(models)
    assert num_finished(url) > before[0]
    assert num_finished(other) > before[1]


@check
def errors_come_through_as_they_are(url: str) -> None:
    with router(url, os.environ["OTHER_URL"]) as address:
        status, body = refusal(f"{address}/v1/completions", {"model": MODEL, "prompt": "x", "temperature": -1})
    assert status == 400
    assert body["error"]["param"] == "temperature"


if __name__ == "__main__":
    main()

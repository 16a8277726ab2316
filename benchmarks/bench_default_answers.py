"""Whether the default model answers plain questions with the defaults of each front end, and comes to an end.

    python benchmarks/bench_default_answers.py [--fronts server,page,LLM.chat,generate,chat] [--rounds 3]

Each front end is asked as by somebody who sets nothing: the server by a body with messages alone, the page's body (it
has a limit of its own), `LLM.chat(messages)`, `minisgl generate --chat`, and `minisgl chat` with a line from a pipe,
which is asked for the capital alone. "by themselves" counts answers that end with an end token within 500 tokens,
"cut" those that end at a limit (a server without one is hung up on after 1,024 tokens), "longest" is in tokens, and
"Paris" counts right answers to the first question, asked --capitals times. A front end that is greedy answers alike
every time, and is asked once.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from minisgl import LLM

BRIEF = 500  # tokens
PATIENCE = 1024  # tokens, `LLM`'s own limit; a server without one may go on to the end of its context
CAPITAL = "What is the capital of France?"
QUESTIONS = [
    CAPITAL,
    "What is the capital of Japan?",
    "What is 2 + 2?",
    "Who wrote Romeo and Juliet?",
    "Why is the sky blue?",
    "How many days are in a week?",
    "What is the largest planet in our solar system?",
    "At what temperature does water boil?",
    "Name three fruits.",
    "What is the opposite of hot?",
    "How do I boil an egg?",
    "What is photosynthesis?",
    "Tell me a joke.",
    "Write a short poem about the sea.",
    "What is Python used for?",
    "Who are you?",
    "Hello!",
    "Give me three tips for sleeping well.",
    "What is the difference between a cat and a dog?",
    "Explain gravity to a child.",
]


class Answer(NamedTuple):
    """num_tokens: 0 where it is not known."""

    text: str
    finish_reason: str
    num_tokens: int


Ask = Callable[[list[str]], list[Answer]]


@contextmanager
def server(max_tokens: int | None) -> Iterator[Ask]:
    """max_tokens: what the page's body has, None for a body with messages alone."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, "-m", "minisgl", "serve", "--port", address.rpartition(":")[2], "--no-log-requests"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process, ThreadPoolExecutor(len(QUESTIONS)) as pool:
        try:
            wait_for(f"{address}/health", process)
            yield lambda questions: list(pool.map(lambda question: post(address, question, max_tokens), questions))
        finally:
            process.terminate()


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        try:
            with urllib.request.urlopen(url):
                return
        except OSError:
            time.sleep(0.2)
    raise SystemExit(f"the server ended with {process.returncode}")


def post(address: str, question: str, max_tokens: int | None) -> Answer:
    """As a stream, so that an answer without a limit can be hung up on."""
    body: dict[str, Any] = {"messages": [{"role": "user", "content": question}], "stream": True}
    body["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
    if max_tokens is not None:
        body["max_tokens"] = max_tokens
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{address}/v1/chat/completions", json.dumps(body).encode(), headers)
    text, reason, num_tokens = "", None, 0
    with urllib.request.urlopen(request) as response:
        for line in response:
            if line.startswith(b"data: {") and reason is None and num_tokens < PATIENCE:
                chunk = json.loads(line.removeprefix(b"data: "))
                num_tokens = chunk["usage"]["completion_tokens"]
                text += chunk["choices"][0]["delta"].get("content") or ""
                reason = chunk["choices"][0]["finish_reason"]
            elif reason is not None or num_tokens >= PATIENCE:
                break
    return Answer(text, reason or "hung up", num_tokens)


@contextmanager
def in_process(_: int | None) -> Iterator[Ask]:
    with LLM() as llm, ThreadPoolExecutor(len(QUESTIONS)) as pool:

        def ask(question: str) -> Answer:
            output = llm.chat([{"role": "user", "content": question}])
            return Answer(output["text"], output["finish_reason"], len(output["token_ids"]))

        yield lambda questions: list(pool.map(ask, questions))


@contextmanager
def generate(_: int | None) -> Iterator[Ask]:
    def ask(questions: list[str]) -> list[Answer]:
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("\n".join(questions))
            file.flush()
            lines = run("generate", "--chat", "--file", file.name, "--jsonl").splitlines()
        outputs = [json.loads(line) for line in lines]
        return [Answer(each["text"], each["finish_reason"], len(each["token_ids"])) for each in outputs]

    yield ask


@contextmanager
def chat(_: int | None) -> Iterator[Ask]:
    yield lambda questions: [Answer(run("chat", text=f"{question}\n"), "stop", 0) for question in questions]


def run(*arguments: str, text: str = "") -> str:
    command = [sys.executable, "-m", "minisgl", *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


FRONTS = {"server": server, "page": server, "LLM.chat": in_process, "generate": generate, "chat": chat}
GREEDY = {"generate", "chat"}


def row(name: str, rounds: int, capitals: int, page_limit: int | None) -> tuple[str, ...]:
    if name in GREEDY:
        rounds = capitals = 1
    with FRONTS[name](page_limit if name == "page" else None) as ask:
        answers = [] if name == "chat" else [answer for _ in range(rounds) for answer in ask(QUESTIONS)]
        paris = sum("Paris" in answer.text for answer in ask([CAPITAL] * capitals))
    brief = sum(answer.finish_reason == "stop" and answer.num_tokens <= BRIEF for answer in answers)
    cut = sum(answer.finish_reason != "stop" for answer in answers)
    longest = max((answer.num_tokens for answer in answers), default=0)
    total = len(answers)
    return name, f"{brief} of {total}", f"{cut} of {total}", f"{longest:,}", f"{paris} of {capitals}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fronts", default=",".join(FRONTS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--capitals", type=int, default=20)
    parser.add_argument("--page-limit", type=int, default=512, help="max_tokens of the page; 0 for none")
    options = parser.parse_args()
    names = ("front end", f"by themselves, <= {BRIEF} tokens", "cut", "longest", "Paris")
    table = Table(*names, title=f"{len(QUESTIONS)} plain questions")
    for name in options.fronts.split(","):
        table.add_row(*row(name, options.rounds, options.capitals, options.page_limit or None))
    Console(width=100).print(table)


if __name__ == "__main__":
    main()

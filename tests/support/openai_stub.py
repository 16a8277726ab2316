"""A small OpenAI-shaped server for testing clients: answers the last text in upper case, a character a piece.

The model's name picks what goes wrong: see `FAULTS`.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

STATE = {"free": 3, "names": ["a", "b"]}
FAULTS = {
    "refused": "HTTP 400 with an error object",
    "plain-500": "HTTP 500 with a page",
    "cut": "the connection closes after three pieces",
    "no-done": "no [DONE]",
    "no-finish": "no finish_reason",
    "error-event": "an error object after three pieces",
    "empty": "no text",
    "no-usage": "no usage",
    "slow": "half a second before each piece",
}


class OpenAIStub(ThreadingHTTPServer):
    """requests: the bodies that came, with the path. gone: set when a client closed an answer that was not over.

    two_are_sent: set when two pieces of an answer are. most_open: answers that were open at once.
    """

    daemon_threads = True

    def __init__(self, model: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.model = model
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.gone, self.two_are_sent = threading.Event(), threading.Event()
        self.num_open = self.most_open = 0
        self.lock = threading.Lock()

    @contextlib.contextmanager
    def count_open(self) -> Iterator[None]:
        with self.lock:
            self.num_open += 1
            self.most_open = max(self.most_open, self.num_open)
        yield
        with self.lock:
            self.num_open -= 1

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves is part of what is tested."""


@contextlib.contextmanager
def openai_stub(model: str = "ok") -> Iterator[OpenAIStub]:
    server = OpenAIStub(model)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: OpenAIStub

    def log_message(self, *args: Any) -> None:
        """Nothing on stderr."""

    def do_GET(self) -> None:
        known = {
            "/v1/models": {"object": "list", "data": [{"id": self.server.model, "object": "model"}]},
            "/get_server_info": {"version": "1.2.3", "internal_states": [STATE]},
        }
        body = known.get(self.path)
        self._send(404 if body is None else 200, body or {"error": {"message": "not here"}})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append({"path": self.path, **body})
        self.server.headers.append({name.lower(): value for name, value in self.headers.items()})
        if body["model"] == "refused":
            return self._send(400, {"error": {"message": "too warm", "param": "temperature"}})
        if body["model"] == "plain-500":
            return self._send(500, "<h1>oops</h1>")
        with self.server.count_open():
            return self._stream(body)

    def _stream(self, body: dict[str, Any]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for number, event in enumerate(_events(body)):
                if body["model"] == "slow":
                    time.sleep(0.5)
                if number == 2:
                    self.server.two_are_sent.set()
                data = event if isinstance(event, str) else json.dumps(event)
                self._write(f"data: {data}\n\n".encode())
        except OSError:
            self.server.gone.set()
            return
        if body["model"] == "cut":
            self.close_connection = True
        else:
            self.wfile.write(b"0\r\n\r\n")

    def _write(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def _send(self, status: int, body: Any) -> None:
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _events(body: dict[str, Any]) -> Iterator[dict[str, Any] | str]:
    model, is_chat = body["model"], "messages" in body
    prompt = body["messages"][-1]["content"] if is_chat else body["prompt"].split("\n")[-1]
    answer = "" if model == "empty" else prompt.upper()[: body.get("max_tokens", 1000)]
    breaks = model in ("cut", "error-event")
    for text in answer[:3] if breaks else answer:
        yield {"choices": [_choice(text, is_chat, None)]}
    if model == "error-event":
        yield {"error": {"message": "boom"}}
    if breaks:
        return
    yield {"choices": [_choice("", is_chat, None if model == "no-finish" else "stop")]}
    if model != "no-usage":
        yield {"choices": [], "usage": _usage(len(prompt), len(answer))}
    if model != "no-done":
        yield "[DONE]"


def _choice(text: str, is_chat: bool, finish_reason: str | None) -> dict[str, Any]:
    piece = {"delta": {"content": text}} if is_chat else {"text": text}
    return {"index": 0, "finish_reason": finish_reason, **piece}


def _usage(prompt_tokens: int, completion_tokens: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": prompt_tokens // 2},
    }

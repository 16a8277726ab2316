"""Speaks as much of llama.cpp's HTTP interface as the CPU benchmark uses: the answer to a prompt counts on from it."""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer({"status": "ok", "build_info": "b1-fake"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert body["ignore_eos"]
        assert body["temperature"] == 0
        last = body["prompt"][-1]
        self._answer({"tokens": [last + step for step in range(1, body["n_predict"] + 1)]})

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def _answer(self, answer: dict[str, object]) -> None:
        text = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


if __name__ == "__main__":
    port = int(sys.argv[sys.argv.index("--port") + 1])
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()

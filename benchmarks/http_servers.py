"""The two HTTP processes that bench_http compares, both in front of the fake engine.

python benchmarks/http_servers.py ours PORT      # minisgl serve, as it is
python benchmarks/http_servers.py naive PORT     # FastAPI, see http_naive.py
"""

from __future__ import annotations

import sys
from unittest.mock import patch

from minisgl.llm import AsyncClient, LLMConfig, RemoteEngine

MAX_RUNNING = 4096


def serve_ours(port: int) -> None:
    from minisgl.cli import main

    main(["serve", "--model", "smollm2", "--port", str(port), "--max-running", str(MAX_RUNNING), "--no-log-requests"])


def serve_naive(port: int) -> None:
    import uvicorn
    from http_naive import make_app

    engine = RemoteEngine(LLMConfig.from_kwargs(model="smollm2"))
    app = make_app(AsyncClient(engine.connect()))
    uvicorn.run(app, host="127.0.0.1", port=port, access_log=False, log_level="warning", backlog=4096)


SERVERS = {"ours": serve_ours, "naive": serve_naive}

if __name__ == "__main__":
    with patch("minisgl.llm.child.MODULE", "http_fake_engine"):
        SERVERS[sys.argv[1]](int(sys.argv[2]))

"""minisgl serve"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from minisgl.env import ENV

EXTRA = frozenset({"httptools", "msgspec", "prometheus_client", "starlette", "uvicorn", "uvloop", "zmq"})


def run(config: dict[str, Any], server: dict[str, Any]) -> None:
    """Serve a model over HTTP until SIGTERM or Ctrl-C. Exits with 0 then, with 1 when the engine died."""
    try:
        from minisgl.cli.startup import make_reporter
        from minisgl.server.engine_process import EngineProcess
        from minisgl.server.serve import serve
    except ModuleNotFoundError as error:
        raise _explained(error) from error
    from minisgl.llm import LLMConfig
    from minisgl.server.config import ServerConfig

    llm_config = LLMConfig.from_kwargs(**config)
    server_config = ServerConfig(**{"api_key": ENV.API_KEY.value, **server})
    sys.exit(serve(llm_config, server_config, partial(EngineProcess, llm_config), make_reporter(server_config)))


def _explained(error: ModuleNotFoundError) -> Exception:
    """The error itself, unless a package of the extra is what is missing."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRA:
        return error
    return ValueError(f"the HTTP server needs the extra `server`: pip install 'minisgl[server]' ({package} is missing)")

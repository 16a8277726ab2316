"""minisgl serve"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from minisgl.cli.extras import needs_server_extra
from minisgl.env import ENV


def run(config: dict[str, Any], server: dict[str, Any]) -> None:
    """Serve a model over HTTP until SIGTERM or Ctrl-C. Exits with 0 then, with 1 when the engine died."""
    from minisgl.llm import LLMConfig
    from minisgl.server.config import ServerConfig
    from minisgl.utils.model_store import check_model

    llm_config = LLMConfig.from_kwargs(**config)
    server_config = ServerConfig(**{"api_key": ENV.API_KEY.value, **server})
    check_model(llm_config.engine.model)
    with needs_server_extra("the HTTP server"):
        from minisgl.cli.terminal_reporter import make_reporter
        from minisgl.server.remote_handle import RemoteHandle
        from minisgl.server.serve import serve
    sys.exit(serve(llm_config, server_config, partial(RemoteHandle, llm_config), make_reporter(server_config)))

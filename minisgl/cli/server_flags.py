"""The flags of commands that look at a running server."""

from __future__ import annotations

from typing import Annotated

import typer

from minisgl.cli.api_client import ApiClient
from minisgl.env import ENV

DEFAULT_URL = "http://127.0.0.1:8000"
Url = Annotated[str, typer.Option("--url", help="Where the server is.")]
ApiKey = Annotated[str | None, typer.Option("--api-key", help="Sent as the bearer token (default: MINISGL_API_KEY).")]


def open_client(url: str, api_key: str | None) -> ApiClient:
    """api_key: as it was given on the command line. ValueError for what is no address."""
    return ApiClient(url, api_key or ENV.API_KEY.value)

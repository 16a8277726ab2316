"""The flags of commands that look at a running server."""

from __future__ import annotations

from typing import Annotated

import typer

from minisgl.cli.api_client import ApiClient
from minisgl.env import ENV

DEFAULT_URL = "http://127.0.0.1:8000"
Url = Annotated[str, typer.Option("--url", help="Where the server is.")]
ApiKey = Annotated[str | None, typer.Option("--api-key", help="Sent as the bearer token (default: MINISGL_API_KEY).")]
# Of commands that have something else to do without --url.
KeyWithUrl = Annotated[
    str | None, typer.Option("--api-key", help="The server's key, with --url (default: MINISGL_API_KEY).")
]


def refuse_lone_key(url: str | None, api_key: str | None) -> None:
    """ValueError for a key that would open nothing."""
    if url is None and api_key is not None:
        raise ValueError("--api-key is for --url")


def open_client(url: str, api_key: str | None) -> ApiClient:
    """api_key: as it was given on the command line. ValueError for what is no address."""
    return ApiClient(url, api_key or ENV.API_KEY.value)

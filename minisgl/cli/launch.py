"""python -m minisgl --model X [--tensor-parallel-size N] [--shell] [--port P], as the predecessor had it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from minisgl.cli import chat, serve


def run(
    config: dict[str, Any],
    server: dict[str, Any],
    sampling: dict[str, Any],
    shell: Annotated[bool, typer.Option("--shell", help="Chat in this terminal instead of serving.")] = False,
) -> None:
    """Serve the model; with --shell the chat. ValueError for flags that the other one of the two would want."""
    if shell:
        _refuse("the HTTP server, which --shell does not start", server)
        chat.run(config=config, sampling=sampling)
    else:
        _refuse("--shell; a request to the server says it itself", sampling)
        serve.run(config=config, server=server)


def _refuse(what_for: str, fields: dict[str, Any]) -> None:
    if fields:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in fields)
        raise ValueError(f"{flags}: only for {what_for}")

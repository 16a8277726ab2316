"""python -m minisgl --model X [--tensor-parallel-size N] [--shell] [--port P], as the predecessor had it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from minisgl.cli import chat


def run(
    config: dict[str, Any],
    sampling: dict[str, Any],
    shell: Annotated[bool, typer.Option("--shell", help="Chat in this terminal.")] = False,
    port: Annotated[int | None, typer.Option("--port", help="Port of the HTTP server.")] = None,
) -> None:
    """With --shell the chat. There is no HTTP server yet, so without it a ValueError says so."""
    if not shell:
        raise ValueError(
            "this version has no HTTP server; --shell chats in the terminal, `minisgl generate` runs prompts"
        )
    if port is not None:
        raise ValueError(f"--port {port} is for the HTTP server, which --shell does not start")
    chat.run(config=config, sampling=sampling)

"""minisgl explain: what a prompt would find cached after others, and where it leaves them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from minisgl.cli.server_flags import KeyWithUrl, refuse_lone_key
from minisgl.utils.model_store import resolve_model

if TYPE_CHECKING:
    from minisgl.cli.explain_prompts import AskedPrompt
    from minisgl.cli.explain_report import Found

DEFAULT_MODEL = "smollm2"


def run(
    prompts: Annotated[
        list[str] | None, typer.Argument(help="Texts; - reads one from stdin, @FILE from a file.", show_default=False)
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", help='More prompts, one a line; of a .jsonl file each is {"prompt": TEXT} or {"messages": [...]}.'
        ),
    ] = None,
    chat: Annotated[
        bool, typer.Option("--chat/--raw", help="A text is a user's message, or plain text (default).")
    ] = False,
    system: Annotated[
        str | None, typer.Option("--system", help="A system message before every conversation without one.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", help=f"Whose tokenizer to use (default: {DEFAULT_MODEL}).")
    ] = None,
    page_size: Annotated[
        int | None, typer.Option("--page-size", min=1, help="Tokens a page of the cache holds (default: 1).")
    ] = None,
    pool_tokens: Annotated[
        int | None,
        typer.Option("--pool-tokens", min=1, help="Tokens that the cache holds (default: enough for all prompts)."),
    ] = None,
    url: Annotated[
        str | None, typer.Option("--url", help="Ask this running server, with what it has cached; nothing runs there.")
    ] = None,
    api_key: KeyWithUrl = None,
    as_json: Annotated[bool, typer.Option("--json", help="As a JSON list, with the text of each cause.")] = False,
) -> None:
    """Say why each prompt is cached or not after those before it, with no model, only its tokenizer."""
    from minisgl.cli.explain_prompts import read_asked
    from minisgl.cli.explain_report import show

    offline = {"--model": model, "--page-size": page_size, "--pool-tokens": pool_tokens}
    _check(url, api_key, [flag for flag, value in offline.items() if value is not None])
    asked = read_asked(prompts or [], file, chat=chat, system=system)
    if url is not None:
        from minisgl.cli.explain_server import explain_by_server

        found = explain_by_server(asked, url, api_key)
    else:
        found = _look_offline(asked, model or DEFAULT_MODEL, page_size or 1, pool_tokens)
    if as_json:
        typer.echo(json.dumps([each.as_json() for each in found], indent=1))
    else:
        show(found, Console(highlight=False, markup=False, emoji=False))


def _check(url: str | None, api_key: str | None, offline: Sequence[str]) -> None:
    """ValueError for flags that would change nothing."""
    if url is not None and offline:
        raise ValueError(f"--url asks a server that has its own model and cache; it takes no {', '.join(offline)}")
    refuse_lone_key(url, api_key)


def _look_offline(prompts: Sequence[AskedPrompt], model: str, page_size: int, pool_tokens: int | None) -> list[Found]:
    if len(prompts) < 2:
        raise ValueError("one prompt has nothing before it: give two or more, or --url to ask a running server")
    path = resolve_model(model, need_weights=False)
    from minisgl.cli.explain_offline import explain_offline  # here, because torch takes seconds

    return explain_offline(prompts, path, page_size, pool_tokens)

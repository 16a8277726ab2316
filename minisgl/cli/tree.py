"""minisgl tree: the prefix cache of a running server, as text, JSON, a graph for Graphviz, or one HTML file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated
from urllib.parse import urlencode

import msgspec
import typer
from msgspec import UNSET

from minisgl.cli.choices import choice_option
from minisgl.cli.files import check_writable
from minisgl.cli.server_flags import DEFAULT_URL, ApiKey, Url, open_client
from minisgl.cli.session import say
from minisgl.core.picture import MAX_PICTURE_NODES
from minisgl.server.schema.tree import Tree
from minisgl.utils.output_file import errors_name

ENDINGS = {".txt": "text", ".json": "json", ".dot": "dot", ".html": "html"}
FORMATS = tuple(ENDINGS.values())
MAX_NODES = {"text": 50, "dot": 200}  # where more would not be read; else as many as the server takes to be right


def run(
    url: Url = DEFAULT_URL,
    form: Annotated[
        str | None,
        choice_option("--format", list(FORMATS), help="What to make (default: what --output ends with, or text)."),
    ] = None,
    max_nodes: Annotated[
        int | None,
        typer.Option(
            "--max-nodes",
            min=1,
            max=MAX_PICTURE_NODES,
            help="Show the largest (default: 50 as text, 200 as dot, else 1500).",
        ),
    ] = None,
    node: Annotated[
        int | None, typer.Option("--node", min=1, help="Only what is below the node of this id; JSON tells ids.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write to this file (default: stdout).")] = None,
    api_key: ApiKey = None,
) -> None:
    """Draw what a server has cached. Beginnings of texts are shown if it was started with --ui-show-text."""
    form = form or _form_of(output)
    check_writable("--output", output)
    query = {"max_nodes": max_nodes or MAX_NODES.get(form), "node": node}
    given = urlencode({name: value for name, value in query.items() if value is not None})
    tree = open_client(url, api_key).ask("GET", f"/inspect/tree{'?' if given else ''}{given}", Tree)
    drawn = _drawn(tree, form, url)
    if not _shows_texts(tree):
        say("sizes only: a server shows texts if it was started with `minisgl serve --ui-show-text`")
    if output is not None:
        with errors_name(output):
            output.write_text(drawn, encoding="utf-8")
    else:
        sys.stdout.write(drawn)


def _form_of(output: Path | None) -> str:
    """By the end of a file's name; ValueError for one that is another kind of file."""
    ending = output.suffix.lower() if output is not None else ""
    if ending and ending not in ENDINGS:
        raise ValueError(f"--output {output}: end it in {', '.join(ENDINGS)}, or say with --format what to make")
    return ENDINGS.get(ending, "text")


def _shows_texts(tree: Tree) -> bool:
    """Whether its server does, as far as this can be seen."""
    return any(node.text is not UNSET for node in tree.nodes) or not any(node.tokens for node in tree.nodes)


def _drawn(tree: Tree, form: str, url: str) -> str:
    if form == "json":
        return json.dumps(msgspec.to_builtins(tree), indent=1) + "\n"
    from minisgl.cli.tree_shapes import as_dot, as_text, read_branches

    try:
        branches = read_branches(tree)
    except LookupError:
        raise ValueError(f"{url} is no server of minisgl, or of another version: its tree cannot be read") from None
    if form == "html":
        from minisgl.cli.tree_html import as_html

        return as_html(tree, branches)
    return as_dot(branches) if form == "dot" else as_text(tree, branches)

"""minisgl top: what a running server does, drawn again and again."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Iterator
from http import HTTPStatus
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live

from minisgl.cli.activity_feed import ActivityFeed
from minisgl.cli.api_client import read_answer
from minisgl.cli.server_flags import DEFAULT_URL, ApiKey, Url, open_client
from minisgl.cli.top_frame import Frame
from minisgl.cli.top_view import View
from minisgl.server.schema.info import ModelInfo
from minisgl.server.schema.tree import Tree

MAX_S = 3600.0
TREE_EVERY_S = 5.0  # a large tree takes the engine some steps
TREE_PATH, TREE_NODES = "/inspect/tree", 64


def run(
    url: Url = DEFAULT_URL,
    interval: Annotated[float, typer.Option("--interval", min=0.1, max=MAX_S, help="Seconds between two looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look twice, print once, and end.")] = False,
    api_key: ApiKey = None,
) -> None:
    """Watch requests, batches, the pool and the cache of a running server. q or Ctrl-C ends it."""
    watch = Watch(url, api_key)
    console = Console(highlight=False)
    if once:
        watch.look()
        time.sleep(interval)
        console.print(Frame(watch.look()))
        return
    with contextlib.suppress(KeyboardInterrupt), _screen(console) as show, _keys() as pressed:
        while True:
            show(Frame(watch.look_again()))
            if pressed(interval) == "q":
                return


class Watch:
    """Looks at a server. A server that is gone for a while is looked for again."""

    def __init__(self, url: str, api_key: str | None) -> None:
        self._client = open_client(url, api_key)
        self._feed = ActivityFeed(self._client)
        self._view = View(url)
        self._tree_due = 0.0

    def look(self) -> View:
        """OSError when the server cannot be reached or has no engine now, ValueError when it refuses."""
        activity = self._feed.ask()
        if self._view.activity is None or self._feed.has_restarted:
            self._view.model = self._client.ask("GET", "/get_model_info", ModelInfo).model_path
            self._view.prefixes = None
            self._tree_due = 0.0
        self._view.take(activity)
        self._look_at_tree()
        return self._view

    def look_again(self) -> View:
        """The same; what cannot be reached is said in the view."""
        try:
            return self.look()
        except OSError as error:
            self._view.trouble = str(error)
            return self._view

    def _look_at_tree(self) -> None:
        """A server without a tree to show has none the next time either."""
        if time.monotonic() < self._tree_due:
            return
        status, body = self._client.answer("GET", f"{TREE_PATH}?max_nodes={TREE_NODES}")
        self._tree_due = time.monotonic() + TREE_EVERY_S
        if status == HTTPStatus.OK:
            self._view.take_tree(read_answer(TREE_PATH, body, Tree))


@contextlib.contextmanager
def _screen(console: Console) -> Iterator[Any]:
    """Something to show frames with: the whole terminal, or line after line where none can be drawn on."""
    if not console.is_terminal or console.is_dumb_terminal:
        yield console.print
        return
    with Live(console=console, screen=True, auto_refresh=False) as live:
        yield lambda frame: live.update(frame, refresh=True)


@contextlib.contextmanager
def _keys() -> Iterator[Any]:
    """Something that waits so many seconds for a key, and gives it; "" if none came. Without a keyboard it only waits.

    Keys come one by one, and are not shown, until the end.
    """
    if not sys.stdin.isatty():
        yield _wait
        return
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield _next_key
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _wait(seconds: float) -> str:
    time.sleep(seconds)
    return ""


def _next_key(seconds: float) -> str:
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    if not ready:
        return ""
    return os.read(sys.stdin.fileno(), 1).decode(errors="replace") or "q"  # the terminal is gone

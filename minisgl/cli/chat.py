"""minisgl chat: a conversation in the terminal, with a model loaded here or one that a server has.

All of it is sent every turn, so all but the new message is cached.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any

import typer
from rich.console import Console

from minisgl.cli.chat_model import ChatModel, LocalModel, Message, Piece
from minisgl.cli.interrupt import Interrupt, until_interrupted
from minisgl.cli.lines import read_lines
from minisgl.cli.server_flags import KeyWithUrl, refuse_lone_key
from minisgl.cli.session import load_llm, printable, say, say_how_it_samples
from minisgl.core import SamplingParams
from minisgl.env import ENV

HELP = """\
/reset  forget the conversation
/stats  what the prefix cache holds and how often it hit
/help   this list
/exit   end (as does Ctrl-D); Ctrl-C stops a reply"""


def run(
    config: dict[str, Any],
    sampling: dict[str, Any],
    system: Annotated[str | None, typer.Option("--system", help="A system message to start with.")] = None,
    url: Annotated[str | None, typer.Option("--url", help="Chat with this running server; nothing is loaded.")] = None,
    api_key: KeyWithUrl = None,
) -> None:
    """Chat until /exit or the end of the input; input from a pipe works too, one message a line."""
    params = replace(SamplingParams(**sampling))  # all fields are given, so `LLM.chat` takes none of the model's advice
    if params.n != 1:
        raise ValueError(f"n={params.n}: a chat has one reply")
    if params.max_tokens == 0:
        raise ValueError("max_tokens=0: a reply needs at least one token")
    if url is not None and config:
        raise ValueError(f"--url names a model that is loaded already; it takes no {', '.join(config)}")
    refuse_lone_key(url, api_key)
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    with contextlib.ExitStack() as stack:
        if url is None:
            llm = stack.enter_context(load_llm(config))
            say_how_it_samples(sampling, llm.sampling_defaults)
            model: ChatModel = LocalModel(llm, params)
        else:
            model = _connect(url, api_key or ENV.API_KEY.value, sampling)
        if sys.stdin.isatty():
            console.print("/help shows the commands", style="dim")
        Chat(model, console, system).run(read_lines(console))


def _connect(url: str, api_key: str | None, sampling: dict[str, Any]) -> ChatModel:
    """The server's first model. On a terminal a line on stderr says which."""
    from minisgl.cli.remote_model import RemoteModel

    model = RemoteModel(url, api_key, sampling)
    say(f"{model.name} at {url}")
    say_how_it_samples(sampling, {})
    return model


class Chat:
    """One conversation: `history` is what the model has seen."""

    def __init__(self, model: ChatModel, console: Console, system: str | None = None) -> None:
        self._model = model
        self._console = console
        self._beginning: list[Message] = [{"role": "system", "content": system}] if system else []
        self.history = list(self._beginning)

    def run(self, lines: Iterator[str]) -> None:
        """Answer line after line."""
        for line in lines:
            text = line.strip()
            if text in ("/exit", "/quit"):
                return
            if text.startswith("/"):
                self._command(text)
            elif text:
                self._say(text)

    def _command(self, name: str) -> None:
        if name == "/reset":
            self.history = list(self._beginning)
            self._console.print("the conversation starts anew", style="dim")
        elif name == "/stats":
            self._console.print(printable(self._model.stats()))
        elif name == "/help":
            self._console.print(HELP)
        else:
            self._console.print(f"{name.split()[0]} is no command; /help lists them", style="red")

    def _say(self, text: str) -> None:
        """One turn. A reply that Ctrl-C stopped stays in the history as far as it came; one that failed does not."""
        self.history.append({"role": "user", "content": text})
        reply = self._answer()
        if reply:
            self.history.append({"role": "assistant", "content": reply})
        else:
            self.history.pop()

    def _answer(self) -> str:
        """The reply to the history, shown with what there is to say about it; "" when it failed."""
        started = time.perf_counter()
        try:
            reply, last = self._stream_reply()
        except ValueError as error:  # the conversation is longer than the context, or the template refuses it
            is_long = len(self.history) > len(self._beginning) + 1
            self._show_error(f"{error}; /reset starts anew" if is_long else str(error))
            return ""
        if last is not None and last.error is not None:
            self._show_error(last.error)
            return ""
        if last is not None and last.totals is not None and self._console.is_terminal:
            self._console.print(last.totals.tokens_line(time.perf_counter() - started), style="dim")
        return reply

    def _stream_reply(self) -> tuple[str, Piece | None]:
        """The text, shown as it comes, and its last piece; None for it when Ctrl-C stopped the reply."""
        reply, last = "", None
        with Interrupt() as interrupt:
            for piece in until_interrupted(self._model.reply(self.history), interrupt):
                reply += piece.text
                self._console.print(printable(piece.text), end="")
                last = piece if piece.is_last else None
        self._console.print(" [stopped]" if last is None else "")
        return reply, last

    def _show_error(self, message: str) -> None:
        self._console.print(f"error: {printable(message)}", style="red")

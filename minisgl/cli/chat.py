"""minisgl chat: a conversation in the terminal. All of it is sent every turn, so all but the new message is cached."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from minisgl.cli.interrupt import Interrupt, until_interrupted
from minisgl.cli.lines import read_lines
from minisgl.cli.report import Output, Totals
from minisgl.cli.session import load_llm, printable
from minisgl.core import SamplingParams

if TYPE_CHECKING:
    from minisgl.llm import LLM

Message = dict[str, str]
HELP = """\
/reset  forget the conversation
/stats  what the prefix cache holds and how often it hit
/help   this list
/exit   end (as does Ctrl-D); Ctrl-C stops a reply"""


def run(
    config: dict[str, Any],
    sampling: dict[str, Any],
    system: Annotated[str | None, typer.Option("--system", help="A system message to start with.")] = None,
) -> None:
    """Chat until /exit or the end of the input; input from a pipe works too, one message a line."""
    params = SamplingParams(**sampling)
    if params.n != 1:
        raise ValueError(f"n={params.n}: a chat has one reply")
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    with load_llm(config) as llm:
        if sys.stdin.isatty():
            console.print("/help shows the commands", style="dim")
        Chat(llm, params, console, system).run(read_lines(console))


class Chat:
    """One conversation: `history` is what the model has seen."""

    def __init__(self, llm: LLM, params: SamplingParams, console: Console, system: str | None = None) -> None:
        self._llm = llm
        self._params = params
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
            self._show_stats()
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
            reply, output = self._stream_reply()
        except ValueError as error:  # the conversation is longer than the context, or the template refuses it
            is_long = len(self.history) > len(self._beginning) + 1
            self._show_error(f"{error}; /reset starts anew" if is_long else str(error))
            return ""
        if output is not None and "error" in output:
            self._show_error(output["error"])
            return ""
        if output is not None and self._console.is_terminal:
            self._show_turn(output, time.perf_counter() - started)
        return reply

    def _stream_reply(self) -> tuple[str, Output | None]:
        """The text, shown as it comes, and the whole output; None for it when Ctrl-C stopped the reply."""
        reply, output = "", None
        with Interrupt() as interrupt:
            for delta in until_interrupted(self._llm.chat(self.history, self._params, stream=True), interrupt):
                reply += delta["text"]
                self._console.print(printable(delta["text"]), end="")
                output = delta.get("output") or output
        self._console.print(" [stopped]" if output is None else "")
        return reply, output

    def _show_turn(self, output: Output, seconds: float) -> None:
        totals = Totals()
        totals.add(output)
        self._console.print(totals.tokens_line(seconds), style="dim")

    def _show_error(self, message: str) -> None:
        self._console.print(f"error: {message}", style="red")

    def _show_stats(self) -> None:
        stats = self._llm.stats()
        self._console.print(self._llm.tree())
        for name, value in stats.items():
            self._console.print(f"{name}: {value:.1%}" if name == "hit_rate" else f"{name}: {value}")

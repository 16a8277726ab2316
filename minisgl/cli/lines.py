"""What the user types, message by message, in a terminal or from a pipe."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from rich.console import Console


def read_lines(console: Console) -> Iterator[str]:
    """Lines of stdin until its end; on a terminal with a prompt and a history of lines, where Ctrl-C drops the line."""
    is_terminal = sys.stdin.isatty()
    ask = _line_editor() if is_terminal else input
    while True:
        try:
            yield ask("> " if is_terminal else "")
        except EOFError:
            console.print(end="\n" if is_terminal else "")
            return
        except KeyboardInterrupt:
            console.print()


def _line_editor() -> Callable[[str], str]:
    """prompt_toolkit's (the extra `ui`), where pasted lines stay together and Alt-Enter begins one; else `input`."""
    try:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.key_binding import KeyBindings
    except ImportError:
        with contextlib.suppress(ImportError):  # not on every platform; `input` edits lines once it is imported
            import readline  # noqa: F401
        return input
    keys = KeyBindings()
    keys.add("escape", "enter")(lambda event: event.current_buffer.insert_text("\n"))
    ask: Callable[[str], str] = PromptSession(key_bindings=keys).prompt
    return ask

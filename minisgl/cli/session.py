"""What the commands share: making the LLM, and showing text that a model wrote."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from minisgl.llm import LLM

# A model may write anything; escape codes must not reach the terminal.
_CONTROLS = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


def load_llm(config: dict[str, Any]) -> LLM:
    """An LLM of these fields; the default model if none is named. On a terminal a line on stderr says what it is.

    ValueError when the fields do not fit together.
    """
    from minisgl.engine.config import EngineConfig
    from minisgl.llm import LLM

    fields = {"model": EngineConfig().model, **config}
    try:
        llm = LLM(**fields)
    except TypeError as error:
        raise ValueError(str(error)) from error
    say(f"{fields['model']}: {_summary(llm)}")
    return llm


def say(text: str) -> None:
    """A line on stderr, if that is a terminal."""
    if _is_terminal():
        typer.secho(text, dim=True, err=True)


def _is_terminal() -> bool:
    return sys.stderr.isatty()


def _summary(llm: LLM) -> str:
    """What "auto" became on this machine."""
    dtype = str(llm.spec.dtype).removeprefix("torch.")
    stats = llm.stats()
    pool = stats["num_pages"] * stats["page_size"]
    return f"{dtype} on {llm.spec.device}, context {llm.spec.max_seq_len:,} tokens, KV pool {pool:,} tokens"


def one_line(text: str) -> str:
    """In quotes, so that blanks can be seen; ends of lines and tabs as marks, and nothing that a terminal obeys."""
    return repr(printable(text).replace("\n", "⏎").replace("\t", "⇥"))


def printable(text: str) -> str:
    """`text` without control characters other than newline and tab."""
    return text.translate(_CONTROLS)

"""What the commands share: making the LLM, and showing text that a model wrote."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from minisgl.llm import LLM

# A model may write anything; escape codes must not reach the terminal.
_CONTROLS = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


def load_llm(config: dict[str, Any]) -> LLM:
    """An LLM of these fields; the default model if none is named. On a terminal a line on stderr says what it is.

    ValueError when the fields do not fit together. The fields' values and the model's name are checked before torch is
    imported, which takes seconds.
    """
    from minisgl.llm import LLMConfig
    from minisgl.utils.model_store import resolve_model

    try:
        engine = LLMConfig.from_kwargs(**config).engine
    except TypeError as error:
        raise ValueError(str(error)) from error
    resolve_model(engine.model, need_weights=engine.load_format != "dummy")
    from minisgl.llm import LLM

    llm = LLM(**{"model": engine.model, **config})
    say(f"{engine.model}: {_summary(llm)}")
    return llm


def say_how_it_samples(sampling: Mapping[str, Any], advice: Mapping[str, Any]) -> None:
    """On a terminal, a line about the temperature unless the user gave one: commands are greedy where a server is not.

    sampling: the fields that were given. advice: those that the model's makers advise.
    """
    if "temperature" not in sampling:
        flags = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in advice.items())
        say("greedy, at temperature 0" + (f"; its makers advise {flags}" if flags else ""))


def shown_sampling(fields: Mapping[str, Any]) -> str:
    """Such as `temperature 0.2, top_p 0.9`."""
    return ", ".join(f"{name} {value}" for name, value in fields.items())


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

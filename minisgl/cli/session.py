"""What the commands share: making the LLM, and showing text that a model wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minisgl.llm import LLM

# A model may write anything; escape codes must not reach the terminal.
_CONTROLS = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


def load_llm(config: dict[str, Any]) -> LLM:
    """An LLM of these fields; the default model if none is named. ValueError when they do not fit together."""
    from minisgl.engine.config import EngineConfig
    from minisgl.llm import LLM

    try:
        return LLM(**{"model": EngineConfig().model, **config})
    except TypeError as error:
        raise ValueError(str(error)) from error


def printable(text: str) -> str:
    """`text` without control characters other than newline and tab."""
    return text.translate(_CONTROLS)

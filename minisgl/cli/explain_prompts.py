"""The prompts of `minisgl explain`: texts, files, and lines of JSON, each a text or a conversation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minisgl.cli.prompts import GivenPrompt, read_lines, read_stdin

Message = dict[str, Any]


@dataclass(frozen=True)
class AskedPrompt:
    """A text, or a conversation. where: what to call it."""

    where: str
    text: str | None = None
    messages: tuple[Message, ...] = ()

    def body(self) -> dict[str, Any]:
        """As the server takes it."""
        return {"prompt": self.text} if self.text is not None else {"messages": list(self.messages)}


def read_asked(given: Sequence[str], file: Path | None, *, chat: bool, system: str | None) -> list[AskedPrompt]:
    """Those of the command line, where - is stdin and @FILE a file's text; then the file's lines.

    chat: a text is a user's message. system: stands before every conversation that has no such message of its own.
    ValueError for what cannot be read, and for none at all.
    """
    prompts = [AskedPrompt(f"prompt {number}", _text_of(text)) for number, text in enumerate(given, 1)]
    if file is not None:
        parse = _parse_json if file.suffix == ".jsonl" else _as_it_is
        prompts += map(parse, read_lines(file))
    if not prompts:
        raise ValueError("nothing to explain: give prompts, or --file with one a line")
    return [_with_system(_as_chat(prompt) if chat else prompt, system) for prompt in prompts]


def _text_of(given: str) -> str:
    if given == "-":
        return read_stdin()
    if not given.startswith("@"):
        return given
    try:
        return Path(given[1:]).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{given[1:]} is not UTF-8: {error}") from None


def _as_it_is(line: GivenPrompt) -> AskedPrompt:
    return AskedPrompt(line.where, line.text)


def _parse_json(line: GivenPrompt) -> AskedPrompt:
    """One of {"prompt": text} and {"messages": [...]}; other fields, as of a request's body, do not matter here."""
    try:
        found = json.loads(line.text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{line.where}: {error}") from None
    prompt, messages = (found.get("prompt"), found.get("messages")) if isinstance(found, dict) else (None, None)
    if isinstance(prompt, str) and messages is None:
        return AskedPrompt(line.where, prompt)
    if prompt is None and isinstance(messages, list) and messages and all(isinstance(each, dict) for each in messages):
        return AskedPrompt(line.where, messages=tuple(messages))
    raise ValueError(f'{line.where}: neither {{"prompt": TEXT}} nor {{"messages": [...]}}')


def _as_chat(prompt: AskedPrompt) -> AskedPrompt:
    if prompt.text is None:
        return prompt
    return AskedPrompt(prompt.where, messages=({"role": "user", "content": prompt.text},))


def _with_system(prompt: AskedPrompt, system: str | None) -> AskedPrompt:
    if system is None or (prompt.messages and prompt.messages[0].get("role") == "system"):
        return prompt
    if prompt.text is not None:
        raise ValueError(f"--system is for conversations: {prompt.where} is a text; see --chat")
    return AskedPrompt(prompt.where, messages=({"role": "system", "content": system}, *prompt.messages))

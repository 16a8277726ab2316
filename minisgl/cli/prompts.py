"""The prompts of one run: read from the command line and a file, then tokenized and checked."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from minisgl.core import SamplingParams
from minisgl.utils.arrays import Int32Array

if TYPE_CHECKING:
    from minisgl.llm import LLM


@dataclass(frozen=True)
class GivenPrompt:
    """where: what to call it in a message."""

    text: str
    where: str


def read_prompts(given: Sequence[str], file: Path | None) -> list[GivenPrompt]:
    """Those of the command line, where - stands for stdin, then the file's lines. ValueError if there are none."""
    texts = [read_stdin() if text == "-" else text for text in given]
    prompts = [GivenPrompt(text, f"prompt {number}") for number, text in enumerate(texts, 1)]
    prompts += [] if file is None else read_lines(file)
    if not prompts:
        raise ValueError("nothing to generate: give a prompt, or --file with one a line")
    return prompts


def read_stdin() -> str:
    """All of it but the last line's end, which `echo` adds and no prompt means."""
    return sys.stdin.read().removesuffix("\n")


def tokenize(llm: LLM, prompts: Sequence[GivenPrompt], params: SamplingParams, chat: bool) -> list[Int32Array]:
    """Token ids of every prompt. chat: of a user's message by the chat template, up to where the answer begins.

    ValueError, saying which of several it is, for one that can never run.
    """
    requests = []
    for prompt in prompts:
        try:
            requests.append(_tokenize(llm, prompt.text, params, chat))
        except ValueError as error:
            raise ValueError(f"{prompt.where}: {error}" if len(prompts) > 1 else str(error)) from error
    return requests


def _tokenize(llm: LLM, text: str, params: SamplingParams, chat: bool) -> Int32Array:
    if chat:
        return llm.client.prepare_chat([{"role": "user", "content": text}], params, {}).input_ids
    return llm.client.prepare(text, params).input_ids


def read_lines(file: Path) -> list[GivenPrompt]:
    """Not by str.splitlines, which cuts a text at U+2028, form feeds and more. A byte order mark is no text."""
    try:
        with file.open(encoding="utf-8-sig", newline="\n") as lines:
            texts = [line.removesuffix("\n").removesuffix("\r") for line in lines]
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not UTF-8: {error}") from None
    return [GivenPrompt(text, f"{file}, line {number}") for number, text in enumerate(texts, 1) if text.strip()]

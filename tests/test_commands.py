"""What the documents tell people to type is there: commands, their flags, programs, targets, extras."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import typer.main
from support.documents import DOCUMENTS, ROOT, commands, name_of

from minisgl.cli.app import build_app

OPTION = re.compile(r"--[a-z][\w-]*")
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def typed(*first: str) -> list[Any]:
    """Every command of the documents that begins with one of these words."""
    found = {
        (name_of(document), *words): words
        for document in DOCUMENTS
        for words in commands(document)
        if words[0].removeprefix(".venv/bin/") in first and len(words) > 1
    }
    return [pytest.param(words, id=" ".join(key)) for key, words in found.items()]


@pytest.mark.parametrize("words", typed("minisgl"))
def test_minisgl_takes_what_the_documents_give_it(words: list[str]) -> None:
    check_line(words[1:])


@pytest.mark.parametrize("words", typed("python"))
def test_a_program_of_the_documents_is_there_with_its_flags(words: list[str]) -> None:
    program = words[1:]
    if program[:2] == ["-m", "minisgl"]:
        check_line(["launch", *program[2:]])
    elif program[0].endswith(".py") or program[0].startswith("scripts/"):
        file = ROOT / program[0]
        beside = "".join(each.read_text() for each in file.parent.glob("*.py")) + file.read_text()
        assert [flag for flag in options(program[1:]) if f'"{flag}"' not in beside] == []


@pytest.mark.parametrize("words", typed("make"))
def test_make_knows_its_targets(words: list[str]) -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert [word for word in words[1:] if "=" not in word and word not in targets] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_an_extra_of_ours_and_a_file_of_ours_that_are_named_are_there(document: Path) -> None:
    text = document.read_text()
    extras = {extra for group in re.findall(r"(?:minisgl|\.)\[([\w,-]+)\]", text) for extra in group.split(",")}
    assert extras <= set(EXTRAS)
    files = re.findall(r"`((?:minisgl|tests|benchmarks|scripts|examples|deploy|docs)/[\w./-]+)`", text)
    assert [file for file in files if not (ROOT / file).exists()] == []


def check_line(words: list[str]) -> None:
    """Fails if the command line has a command, a flag or a value that is unknown. A bare command is only looked up."""
    command: Any = typer.main.get_command(build_app(words[0]))
    name = "minisgl"
    while words and hasattr(command, "commands"):
        name, *words = words
        command = command.commands[name]
    if words:
        command.make_context(name, words)


def options(words: Iterable[str]) -> list[str]:
    return [found[0] for word in words if (found := OPTION.match(word))]


def test_a_flag_that_is_not_there_would_be_noticed() -> None:
    with pytest.raises(Exception, match="No such option"):
        check_line(["serve", "--no-such-flag"])

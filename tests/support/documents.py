"""The documents of the repository, and the code and commands that they show."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "deploy").glob("*.md")])
STARTS = re.compile(r"(?:\.venv/bin/)?(?:minisgl|python|make|scripts/\S+|pip)(?: |$)")
OPERATORS = {"|", ">", ">>", "<", "&&", ";", "&", "2>"}


def name_of(document: Path) -> str:
    return str(document.relative_to(ROOT))


def blocks(document: Path, languages: str) -> list[str]:
    """Fenced code of one of these languages, as in a regular expression."""
    return re.findall(rf"^```(?:{languages})\n(.*?)^```", document.read_text(), re.DOTALL | re.MULTILINE)


def commands(document: Path) -> Iterator[list[str]]:
    """The words of each command line, fenced, indented or between backticks, up to a pipe or the like.

    Where a console is shown, only what follows a prompt is a command; the rest is what came of it.
    """
    text = document.read_text()
    indented = re.findall(r"(?:^    .*\n?)+", text, re.MULTILINE)
    for code in blocks(document, "sh|bash") + indented:
        for line in _lines(code):
            yield from _words(line.strip())
    for code in blocks(document, "console|text"):
        for line in _lines(code):
            if line.startswith("$ "):
                yield from _words(line.removeprefix("$ "))
    for line in re.findall(r"`([^`]+)`", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)):
        yield from _words(" ".join(line.split()))


def _lines(code: str) -> list[str]:
    return code.replace("\\\n", " ").splitlines()


def _words(line: str) -> Iterator[list[str]]:
    if STARTS.match(line):
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words = []
        for word in lexer:
            if word in OPERATORS:
                break
            words.append(word)
        yield words

"""Every message that docs/troubleshooting.md quotes is one that the code has."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator

import pytest
from support.documents import ROOT, blocks

from minisgl.cli.flags import GROUPS, flag_of
from minisgl.core import CAUSES

PAGE = ROOT / "docs" / "troubleshooting.md"
MESSAGES = [line for block in blocks(PAGE, "text") for line in block.splitlines()]
FLAGS = {
    field.name: flag_of(field)
    for _, configs in GROUPS.values()
    for config in configs
    for field in dataclasses.fields(config)
}
LEAST = 12  # letters of a text that could be a message of its own


def texts() -> Iterator[str]:
    """A regular expression for each text of the package: anything may stand where a value is put in."""
    for file in (ROOT / "minisgl").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.JoinedStr):
                yield "".join(map(_pattern, node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield re.sub(r"%[sd]|%\\\.\df", ".+", re.escape(node.value))


def _pattern(value: ast.expr) -> str:
    return re.escape(str(value.value)) if isinstance(value, ast.Constant) else ".*"


@pytest.fixture(scope="module")
def known() -> list[re.Pattern[str]]:
    long_enough = {text for text in texts() if len(re.sub(r"\W|\.[*+]", "", text)) >= LEAST}
    return [re.compile(text) for text in long_enough]


def spellings(message: str) -> list[str]:
    """As it is, and with the fields that the command line shows as flags."""
    plain = message
    for name, flag in FLAGS.items():
        plain = plain.replace(f"{flag}=", f"{name}=")
    return [message, plain]


def has(known: list[re.Pattern[str]], message: str) -> bool:
    return any(each.fullmatch(text) for text in spellings(message) for each in known)


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_of_the_page_is_one_of_the_code(message: str, known: list[re.Pattern[str]]) -> None:
    assert has(known, message)


def test_a_message_that_nobody_prints_would_be_noticed(known: list[re.Pattern[str]]) -> None:
    assert not has(known, "port 8000 on 127.0.0.1 is in use; --door takes another one")


def test_the_page_says_what_to_do_about_each_cause_and_of_no_other() -> None:
    table = PAGE.read_text().partition("## Nothing is cached")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE)) == set(CAUSES) - {"other_namespace"}
    assert "`other_namespace`" in table  # told to operators alone

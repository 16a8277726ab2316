"""Reading prompts, without a model."""

from __future__ import annotations

from pathlib import Path

import pytest

from minisgl.cli.prompts import read_prompts


def test_one_prompt_a_line_whatever_else_is_in_it(tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    file.write_bytes("\ufeffone\u2028still one\x0cstill\r\n\n  \ntwo".encode())
    assert [(p.text, p.where) for p in read_prompts([], file)] == [
        ("one\u2028still one\x0cstill", f"{file}, line 1"),
        ("two", f"{file}, line 4"),
    ]


def test_a_file_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    file.write_bytes(b"caf\xe9\n")
    with pytest.raises(ValueError, match=r"prompts\.txt is not UTF-8"):
        read_prompts([], file)


def test_nothing_to_do_is_an_error() -> None:
    with pytest.raises(ValueError, match="nothing to generate"):
        read_prompts([], None)

import io
import sys

import pytest
from rich.console import Console

from minisgl.cli.lines import read_lines


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO())


class FakeTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_pipe_is_read_to_its_end_without_a_prompt(console, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO("a\n\nb"))
    assert list(read_lines(console)) == ["a", "", "b"]
    assert capsys.readouterr().out == ""


def test_without_prompt_toolkit_a_terminal_is_read_by_input(console, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "prompt_toolkit", None)
    monkeypatch.setattr(sys, "stdin", FakeTerminal("a\nb\n"))
    assert list(read_lines(console)) == ["a", "b"]
    assert capsys.readouterr().out == "> > > "


def test_with_prompt_toolkit_lines_pasted_or_begun_by_alt_enter_are_one_message(console, monkeypatch):
    pytest.importorskip("prompt_toolkit")
    from prompt_toolkit.application import create_app_session
    from prompt_toolkit.input import create_pipe_input
    from prompt_toolkit.output import DummyOutput

    monkeypatch.setattr(sys, "stdin", FakeTerminal())
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        keys.send_text("\x1b[200~a\nb\x1b[201~\rc\x1b\rd\rdropped\x03e\r\x04")
        assert list(read_lines(console)) == ["a\nb", "c\nd", "e"]

"""What other servers answer to the questions of the commands: a line that says so, and no traceback."""

from __future__ import annotations

from typing import Any

import pytest

from minisgl.cli.api_client import ApiClient

COMMANDS = [["explain", "a"], ["tree"], ["tree", "--format", "json"], ["top", "--once"]]
BODIES = [b"", b"[]", b"null", b"<html>Hello</html>", b"[" * 100_000, b'{"causes":' + b"[" * 100_000, b"\xff"]


@pytest.mark.parametrize("status", [200, 404])
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_another_server_is_told_from_one_of_minisgl(
    run: Any, monkeypatch: pytest.MonkeyPatch, command: list[str], body: bytes, status: int
) -> None:
    monkeypatch.setattr(ApiClient, "answer", lambda *question: (status, body))
    done = run(*command, "--url", "http://127.0.0.1:1")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: /")
    assert ("this is not what minisgl answers" if status == 200 else "HTTP 404") in done.err


@pytest.mark.parametrize("answer", [b"{}", b'{"prompt_tokens": 3, "causes": {"weather": 3}}'])
def test_an_explanation_without_what_it_must_say_is_none(
    run: Any, monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    monkeypatch.setattr(ApiClient, "answer", lambda *question: (200, answer))
    done = run("explain", "a", "--url", "http://127.0.0.1:1")
    assert (done.code, done.out) == (2, "")
    assert "/cache/explain: this is not what minisgl answers" in done.err


def test_a_server_cannot_write_to_the_terminal_what_it_wants(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = b'{"error": {"message": "no\\u001b[2Jthing"}}'
    monkeypatch.setattr(ApiClient, "answer", lambda *question: (400, refusal))
    assert run("explain", "a", "--url", "http://127.0.0.1:1").err == "error: the server: no[2Jthing\n"

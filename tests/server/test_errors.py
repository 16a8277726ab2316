from __future__ import annotations

import json

import pytest

from minisgl.server.errors import MAX_MESSAGE_LEN, ApiError


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (404, "invalid_request_error"),
        (413, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "server_error"),
        (503, "server_error"),
    ],
)
def test_the_type_says_whose_fault_it_is(status: int, kind: str) -> None:
    error = json.loads(ApiError(status, "no", param="stop", code="a_word").encode())["error"]
    assert error == {"message": "no", "type": kind, "param": "stop", "code": "a_word"}


def test_a_message_may_quote_a_lone_surrogate() -> None:
    assert json.loads(ApiError(400, "has \ud800").encode().decode())["error"]["message"] == "has \\ud800"


def test_a_message_that_quotes_very_much_is_cut() -> None:
    message = json.loads(ApiError(404, "x" * 10_000_000).encode())["error"]["message"]
    assert len(message) == MAX_MESSAGE_LEN + len("...")

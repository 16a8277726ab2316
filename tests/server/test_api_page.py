"""The requests in docs/api.md are taken as they stand there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.asgi import Api, says

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
REQUESTS = re.findall(
    r"\$ curl (?:-i )?localhost:8000(\S+) -H 'Content-Type: application/json' -d '([^']+)'", PAGE.read_text()
)


@pytest.mark.parametrize(("path", "body"), REQUESTS)
def test_an_example_is_answered(path: str, body: str) -> None:
    api = Api(says("Hello"))
    status = 400 if '"temperature": 3' in body else 200
    assert api.post(path, **{**json.loads(body), "tokens": [1, 2]}).status_code == status


def test_every_endpoint_that_takes_a_body_has_an_example() -> None:
    shown = {path for path, _ in REQUESTS}
    assert shown == {
        "/v1/chat/completions",
        "/v1/completions",
        "/generate",
        "/tokenize",
        "/detokenize",
        "/cache/probe",
        "/cache/explain",
        "/cache/purge",
        "/inspect/path",
        "/abort_request",
    }

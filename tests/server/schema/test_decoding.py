"""Bodies of millions of small things cost what reading them costs, and lists that nobody needs have an end."""

from __future__ import annotations

import gc
import sys
from typing import Any

import pytest
from support.asgi import CHAT, GENERATE, HI, Api, says

from minisgl.server.errors import ApiError
from minisgl.server.schema.completions import CompletionRequest
from minisgl.server.schema.decoding import decode
from minisgl.server.schema.fields import MAX_PROMPTS
from minisgl.server.schema.template import MAX_VARIABLES


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="there a collection waits until the decoder has returned")
def test_nothing_is_collected_while_a_body_is_decoded() -> None:
    phases: list[str] = []

    def note(phase: str, info: dict[str, int]) -> None:
        phases.append(phase)

    gc.callbacks.append(note)
    try:
        body = decode(b'{"prompt":[%s[1]]}' % (b"[1]," * 100_000), CompletionRequest)
    finally:
        gc.callbacks.remove(note)
    assert len(body.prompt) == 100_001
    assert phases.count("start") <= 1, "one may come afterwards"


@pytest.mark.parametrize("was_on", [True, False])
def test_collection_is_as_before_after_a_body_that_is_wrong(was_on: bool) -> None:
    try:
        (gc.enable if was_on else gc.disable)()
        with pytest.raises(ApiError):
            decode(b"[", CompletionRequest)
        assert gc.isenabled() == was_on
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"messages": HI, "chat_template_kwargs": {f"v{i}": 1 for i in range(MAX_VARIABLES + 1)}}),
        (GENERATE, {"text": "Hi", "sampling_params": [{}] * (MAX_PROMPTS + 1)}),
    ],
)
def test_more_than_can_be_of_use_is_refused(path: str, body: dict[str, Any]) -> None:
    error = Api(says("Hello")).error(400, path, **body)
    assert "of length <=" in error["message"]

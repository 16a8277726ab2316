"""One answer, from whichever endpoint and way it comes."""

from __future__ import annotations

from typing import Any

import pytest
from support.answers import joined_chat, joined_completion, whole_chat, whole_completion
from support.asgi import CHAT, COMPLETIONS, GENERATE, HI, Api

PROMPTS: dict[str, dict[str, Any]] = {CHAT: {"messages": HI}, COMPLETIONS: {"prompt": "Hi"}, GENERATE: {"text": "Hi"}}
USAGE = {"include_usage": True}
WAYS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def answer(api: Api, path: str, stream: bool, **sampling: Any) -> tuple[str, str, int]:
    """Text, finish reason and number of completion tokens."""
    if path == GENERATE:
        sampling["max_new_tokens"] = sampling.pop("max_tokens", 99)
        body = {**PROMPTS[path], "sampling_params": sampling}
        made = api.events(path, **body)[-1] if stream else api.whole(path, **body)
        return made["text"], made["meta_info"]["finish_reason"]["type"], made["meta_info"]["completion_tokens"]
    body = {"max_tokens": 99, **PROMPTS[path], **sampling}
    if stream:
        *events, last = api.events(path, **body, stream_options=USAGE)
        (choice,) = (joined_chat if path == CHAT else joined_completion)(events)
    else:
        last = api.whole(path, **body)
        (choice,) = (whole_chat if path == CHAT else whole_completion)(last)
    return choice["text"], choice["reason"], last["usage"]["completion_tokens"]

"""Fields that are known elsewhere and would change the answer: only what changes nothing is taken, the rest refused."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from minisgl.server.errors import ApiError
from minisgl.server.schema.decoding import Body
from minisgl.server.schema.fields import MustBeFalse

Empty = Annotated[list[Any], Meta(max_length=0)]


class TextFormat(msgspec.Struct):
    """The only response format: free text."""

    type: Literal["text"]


class Unsupported(Body, kw_only=True):
    """What chats and completions refuse alike."""

    ONLY: ClassVar[dict[str, str]] = {
        "bad_words": "only an empty list",
        "lora_path": "there are no adapters",
        "response_format": 'only {"type": "text"}',
    }
    MUST_BE_FALSE: ClassVar[tuple[str, ...]] = ("include_stop_str_in_output", "no_stop_trim", "use_beam_search")

    allowed_token_ids: None = None
    bad_words: Empty | None = None
    ebnf: None = None
    guided_choice: None = None
    guided_grammar: None = None
    guided_json: None = None
    guided_regex: None = None
    include_stop_str_in_output: MustBeFalse | None = None
    json_schema: None = None
    lora_path: Literal[""] | None = None
    no_stop_trim: MustBeFalse | None = None
    prompt_logprobs: None = None
    regex: None = None
    response_format: TextFormat | None = None
    structured_outputs: None = None
    truncate_prompt_tokens: None = None
    use_beam_search: MustBeFalse | None = None

    def __post_init__(self) -> None:
        for name in self.MUST_BE_FALSE:
            refuse_true(name, getattr(self, name))


def refuse_true(name: str, value: bool | None) -> None:
    """ApiError 400 for a switch that is on."""
    if value:
        raise ApiError(400, f"{name} is not supported: only false", param=name, code="unsupported_parameter")

"""POST /cache/probe and /cache/purge."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from minisgl.server.errors import ApiError
from minisgl.server.schema.chat import Messages
from minisgl.server.schema.decoding import Body
from minisgl.server.schema.fields import CacheSalt, TokenId
from minisgl.server.schema.template import ChatTemplateKwargs, ContinueFinalMessage, ReasoningEffort

Field = Literal["prompt", "input_ids", "messages"]


class CachedText(Body, kw_only=True):
    """What may be cached: a text, token ids, or a conversation."""

    PROMPT_IDS: ClassVar[tuple[str, ...]] = ("input_ids",)

    model: str | None = None
    prompt: str | None = None
    input_ids: Annotated[list[TokenId], Meta(min_length=1)] | None = None
    messages: Messages | None = None
    cache_salt: CacheSalt | None = None
    add_generation_prompt: bool | None = None
    chat_template_kwargs: ChatTemplateKwargs | None = None
    continue_final_message: ContinueFinalMessage | None = None
    reasoning_effort: ReasoningEffort | None = None

    def given(self) -> list[Field]:
        """By which fields it is named."""
        fields: list[Field] = ["prompt", "input_ids", "messages"]
        return [name for name in fields if getattr(self, name) is not None]


class ProbeRequest(CachedText, kw_only=True):
    """A prompt, as a request would have it: one of prompt, input_ids and messages."""

    def __post_init__(self) -> None:
        if len(self.given()) != 1:
            raise ApiError(400, "one of prompt, input_ids and messages is required", param="prompt")


class PurgeRequest(CachedText, kw_only=True):
    """With what purged prompts begin, or all of a salt. add_generation_prompt is false where it is not given."""

    all_salts: (
        Annotated[
            bool,
            Meta(description="true: of every salt and of none. false: of cache_salt, or of none where there is none."),
        ]
        | None
    ) = None

    def __post_init__(self) -> None:
        if len(self.given()) > 1:
            raise ApiError(400, "at most one of prompt, input_ids and messages is allowed", param="prompt")
        if (
            not self.given() and self.cache_salt is None and self.all_salts is None
        ):  # a misspelt field must purge nothing
            raise ApiError(
                400, "one of prompt, input_ids, messages, cache_salt and all_salts is required", param="prompt"
            )
        if self.all_salts and self.cache_salt is not None:
            raise ApiError(400, "cache_salt and all_salts: true exclude each other", param="cache_salt")


class Probed(msgspec.Struct):
    """prompt_tokens: of the prompt. cached_tokens: those of them that a request would find; never the last one."""

    prompt_tokens: int
    cached_tokens: int


class Purged(msgspec.Struct):
    """freed_tokens: whose room is free now; what running requests hold is freed with their end."""

    freed_tokens: int
    success: bool = True

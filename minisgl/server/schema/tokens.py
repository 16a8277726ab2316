"""POST /tokenize and /detokenize."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from minisgl.core import Limits
from minisgl.server.errors import ApiError
from minisgl.server.schema.chat import Messages
from minisgl.server.schema.decoding import Body
from minisgl.server.schema.fields import TokenId
from minisgl.server.schema.template import ChatTemplateKwargs, ContinueFinalMessage, ReasoningEffort

MAX_IDS = 2**17


class TokenizeRequest(Body, kw_only=True):
    """A text, as `prompt`, or a conversation, as `messages`; one of them."""

    model: str | None = None
    prompt: str | None = None
    messages: Messages | None = None
    add_special_tokens: (
        Annotated[bool, Meta(description="With the tokens that the model wants around a prompt. Default true.")] | None
    ) = None
    return_token_strs: bool | None = None
    add_generation_prompt: bool | None = None
    chat_template_kwargs: ChatTemplateKwargs | None = None
    continue_final_message: ContinueFinalMessage | None = None
    reasoning_effort: ReasoningEffort | None = None

    def __post_init__(self) -> None:
        if (self.prompt is None) == (self.messages is None):
            raise ApiError(400, "one of prompt and messages is required", param="prompt")


class DetokenizeRequest(Body, kw_only=True):
    """Token ids, to be made a text. skip_special_tokens is false where it is not given: what was sent comes back."""

    tokens: list[TokenId]
    model: str | None = None
    skip_special_tokens: bool | None = None

    @classmethod
    def check_num_ids(cls, name: str, num: int, limits: Limits) -> None:
        allowed = max(MAX_IDS, limits.max_seq_len)
        if name == "tokens" and num > allowed:
            raise ApiError(400, f"tokens: {num} token ids; at most {allowed} are detokenized at a time", param=name)

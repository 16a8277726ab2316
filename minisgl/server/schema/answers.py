"""What comes back from chats and completions, whole and in chunks."""

from __future__ import annotations

from typing import Literal

import msgspec

from minisgl.server.schema.explanation import PromptExplanation

FinishReason = Literal["stop", "length"]
EventExplanation = PromptExplanation | msgspec.UnsetType | None
TokenIds = list[int] | msgspec.UnsetType  # under vLLM's names, absent unless they were asked for


class PromptTokensDetails(msgspec.Struct):
    """cached_tokens: of the prompt's, those that were not computed again."""

    cached_tokens: int


class Usage(msgspec.Struct):
    """Prompts are counted once, however many choices; end tokens and tokens of stop strings count."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class TopLogprob(msgspec.Struct):
    token: str
    logprob: float
    bytes: list[int]


class ChatTokenLogprob(msgspec.Struct):
    """token: its text, or `bytes:\\xf0\\x9f` when it is a part of a character."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct):
    content: list[ChatTokenLogprob]
    refusal: None = None


class AssistantMessage(msgspec.Struct):
    content: str
    role: Literal["assistant"] = "assistant"
    refusal: None = None


class ChatChoice(msgspec.Struct):
    """explanation: its own, where there are several and it was asked for."""

    index: int
    message: AssistantMessage
    finish_reason: FinishReason
    logprobs: ChatLogprobs | None = None
    explanation: EventExplanation = msgspec.UNSET
    token_ids: TokenIds = msgspec.UNSET


class ChatCompletion(msgspec.Struct, kw_only=True):
    """explanation: absent unless it was asked for; as the first choice found it. null: this server explains nothing."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    explanation: EventExplanation = msgspec.UNSET
    prompt_token_ids: TokenIds = msgspec.UNSET


class ChatDelta(msgspec.Struct, omit_defaults=True):
    role: str | None = None
    content: str | None = None


class ChatChunkChoice(msgspec.Struct):
    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None = None
    finish_reason: FinishReason | None = None
    explanation: EventExplanation = msgspec.UNSET
    token_ids: TokenIds = msgspec.UNSET


class ChatChunk(msgspec.Struct, kw_only=True):
    """An event of a stream. usage: absent unless it was asked for, null until it is known.

    explanation, prompt_token_ids: in the first one, if they were asked for.
    """

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: Usage | msgspec.UnsetType | None = msgspec.UNSET
    explanation: EventExplanation = msgspec.UNSET
    prompt_token_ids: TokenIds = msgspec.UNSET


class CompletionLogprobs(msgspec.Struct):
    """One entry a token. text_offset: characters of the choice's text before it. top_logprobs: with the token itself.

    The prompt's first token, under echo, has null instead of numbers.
    """

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(msgspec.Struct):
    """explanation: its own, where there are several and it was asked for; in a stream in its first event, as are
    prompt_token_ids.
    """

    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: FinishReason | None = None
    explanation: EventExplanation = msgspec.UNSET
    prompt_token_ids: TokenIds = msgspec.UNSET
    token_ids: TokenIds = msgspec.UNSET


class Completion(msgspec.Struct, kw_only=True):
    """A whole completion, or an event of a stream; there, usage is as in a chat's chunk.

    explanation: absent unless it was asked for; of several prompts their sums. null: this server explains nothing.
    """

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | msgspec.UnsetType | None = msgspec.UNSET
    explanation: EventExplanation = msgspec.UNSET

"""The messages of a chat, as they are sent and as the model's template gets them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

Role = Literal["system", "developer", "user", "assistant", "tool", "function"]


class TextPart(msgspec.Struct, tag_field="type", tag="text"):
    text: str


class RefusalPart(msgspec.Struct, tag_field="type", tag="refusal"):
    """What an assistant said instead; text as any other."""

    refusal: str


class Function(msgspec.Struct, omit_defaults=True):
    """A call that the model made earlier. arguments: an object, written as JSON."""

    name: str
    arguments: str | dict[str, Any] | None = None


class ToolCall(msgspec.Struct, omit_defaults=True):
    function: Function
    id: str | None = None
    type: Literal["function"] = "function"


class ChatMessage(msgspec.Struct, omit_defaults=True):
    """One message. Only an assistant's that calls tools, or refuses, may have no content; parts of it are joined.

    function_call: one of tool_calls, as they were written before there were several.
    """

    role: Role
    content: str | list[TextPart | RefusalPart] | None = None
    function_call: Function | None = None
    name: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    tool_call_id: str | None = None
    tool_calls: list[ToolCall] | None = None


def plain_messages(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """The messages as a program gives them to `LLM.chat`; what is absent is not there."""
    made: list[dict[str, Any]] = msgspec.to_builtins(messages)
    return made


def num_objects(messages: Sequence[ChatMessage]) -> int:
    """Messages, their parts and their calls."""
    parts = sum(len(message.content) for message in messages if isinstance(message.content, list))
    return len(messages) + parts + sum(len(message.tool_calls) for message in messages if message.tool_calls)

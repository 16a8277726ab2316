"""The messages of a chat, as they are sent and as the model's template gets them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from minisgl.server.errors import ApiError

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
    """As templates read them: what is absent is not there, and arguments of calls are objects again.

    ApiError 400 for a refusal that is not an assistant's.
    """
    return [_plain(message, f"messages[{i}]") for i, message in enumerate(messages)]


def num_objects(messages: Sequence[ChatMessage]) -> int:
    """Messages, their parts and their calls."""
    parts = sum(len(message.content) for message in messages if isinstance(message.content, list))
    return len(messages) + parts + sum(len(message.tool_calls) for message in messages if message.tool_calls)


def _plain(message: ChatMessage, where: str) -> dict[str, Any]:
    made: dict[str, Any] = msgspec.to_builtins(message)
    function_call = made.pop("function_call", None)
    if function_call is not None and message.role == "assistant" and not message.tool_calls:
        made["tool_calls"] = [{"function": function_call}]
    for call in made.get("tool_calls", ()):
        call["type"] = "function"
        call["function"]["arguments"] = _arguments(call["function"].get("arguments"))
    if isinstance(message.content, list):
        parts = enumerate(message.content)
        made["content"] = [_text_part(part, message.role, f"{where}.content[{j}]") for j, part in parts]
    elif message.content is None and message.refusal and message.role == "assistant":
        made["content"] = message.refusal
    return made


def _text_part(part: TextPart | RefusalPart, role: Role, where: str) -> dict[str, str]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if role != "assistant":
        name = f"{where}.type"
        raise ApiError(400, f"{name}: only an assistant refuses, not a {role}", param=name)
    return {"type": "text", "text": part.refusal}


def _arguments(arguments: Any) -> Any:
    """The object in a JSON text; a text that is none stays as it is."""
    if not isinstance(arguments, str):
        return arguments if arguments is not None else {}
    try:
        return msgspec.json.decode(arguments or "{}", type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return arguments

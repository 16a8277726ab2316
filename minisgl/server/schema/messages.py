"""The messages of a chat, as they are sent and as the model's template gets them."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Role = Literal["system", "developer", "user", "assistant", "tool", "function"]


class TextPart(msgspec.Struct):
    type: Literal["text"]
    text: str


class Function(msgspec.Struct, omit_defaults=True):
    """A call that the model made earlier. arguments: an object, written as JSON."""

    name: str
    arguments: str | dict[str, Any] | None = None


class ToolCall(msgspec.Struct, omit_defaults=True):
    function: Function
    id: str | None = None
    type: Literal["function"] = "function"


class ChatMessage(msgspec.Struct, omit_defaults=True):
    """One message. Only an assistant's that calls tools may have no content; parts of it are joined."""

    role: Role
    content: str | list[TextPart] | None = None
    name: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    tool_call_id: str | None = None
    tool_calls: list[ToolCall] | None = None


def plain(message: ChatMessage) -> dict[str, Any]:
    """As templates read it: what is absent is not there, and arguments of calls are objects again."""
    made: dict[str, Any] = msgspec.to_builtins(message)
    for call in made.get("tool_calls", ()):
        call["type"] = "function"
        call["function"]["arguments"] = _arguments(call["function"].get("arguments"))
    return made


def _arguments(arguments: Any) -> Any:
    """The object in a JSON text; a text that is none stays as it is."""
    if not isinstance(arguments, str):
        return arguments if arguments is not None else {}
    try:
        return msgspec.json.decode(arguments or "{}", type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return arguments

"""Chat messages: checked and made plain, then written out by the model's own template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

from minisgl.core import FieldError

# Arguments of transformers' apply_chat_template that are no template variables: what comes out is ours to decide.
RESERVED = {"conversation", "tokenize", "padding", "truncation", "max_length", "return_tensors", "return_dict"}
RESERVED |= {"return_assistant_tokens_mask", "sanitize_control_tokens", "tokenizer_kwargs"}
_COMMON_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})


def plain_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Copies of the messages whose content is a string, since many templates can only join strings.

    A list of text parts becomes their joined text. An assistant message that calls tools may have no content.
    Other keys (tool_calls, tool_call_id, name, ...) pass through. Raises FieldError naming messages[i].
    """
    if isinstance(messages, str | Mapping) or not isinstance(messages, Sequence):
        raise FieldError("messages", f"messages must be a list, not {type(messages).__name__}")
    if not messages:
        raise FieldError("messages", "messages is empty: a chat needs at least one message")
    return [_plain_message(message, f"messages[{i}]") for i, message in enumerate(messages)]


def _plain_message(message: Any, where: str) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise FieldError(where, f"{where} must be an object with role and content, not {type(message).__name__}")
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise FieldError(f"{where}.role", f"{where}.role must be a non-empty string, not {role!r}")
    return {**message, "content": _text(message, where)}


def _text(message: Mapping[str, Any], where: str) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(_part_text(part, f"{where}.content[{j}]") for j, part in enumerate(content))
    if content is None and message["role"] == "assistant" and message.get("tool_calls"):
        return ""
    problem = "is missing" if "content" not in message else f"must be text, not {_json_name(content)}"
    raise FieldError(f"{where}.content", f"{where}.content {problem} (role {message['role']!r})")


def _part_text(part: Any, where: str) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind is None:
        raise FieldError(where, f"{where} has no type; only parts of type 'text' are supported")
    if kind != "text":
        raise FieldError(where, f"{where} has type {kind!r}; only parts of type 'text' are supported")
    text = part.get("text")
    if not isinstance(text, str):
        raise FieldError(f"{where}.text", f"{where}.text must be a string, not {_json_name(text)}")
    return text


def _json_name(value: Any) -> str:
    return "null" if value is None else type(value).__name__


def render_chat(
    hf: PreTrainedTokenizerFast, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool, **kwargs: Any
) -> str:
    """The text of a chat by the template of `hf`. Raises ValueError whatever goes wrong inside the template."""
    if reserved := sorted(RESERVED & kwargs.keys()):
        raise ValueError(f"not a chat template variable: {', '.join(reserved)}")
    if hf.chat_template is None and kwargs.get("chat_template") is None:
        raise ValueError("this model has no chat template: send a plain prompt instead of messages")
    plain = plain_messages(messages)
    try:
        text: str = hf.apply_chat_template(plain, tokenize=False, add_generation_prompt=add_generation_prompt, **kwargs)
    except Exception as error:  # the template is a program that came with the model: it may raise anything
        said = str(error) or type(error).__name__
        reason = said.encode(errors="backslashreplace").decode()  # it may quote a lone surrogate
        raise ValueError(f"the chat template refused the messages: {reason}{_suspect(plain)}") from error
    return text


def _suspect(messages: list[dict[str, Any]]) -> str:
    """A hint at the first message whose role is not a usual one; templates do not say which they stumbled over."""
    for i, message in enumerate(messages):
        if message["role"] not in _COMMON_ROLES:
            return f" (messages[{i}].role is {message['role']!r})"
    return ""

"""Chat messages: checked and made plain, then written out by the model's own template."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from minisgl.core import FieldError
from minisgl.utils.json_outline import JsonSizeError, TextsCheck
from minisgl.utils.spelling import likely, nearest

Templates = str | Mapping[str, str] | None  # one, several by name, or none

# Arguments of transformers' apply_chat_template that are no template variables: what comes out is ours to decide.
RESERVED = {"conversation", "tokenize", "padding", "truncation", "max_length", "return_tensors", "return_dict"}
RESERVED |= {"return_assistant_tokens_mask", "sanitize_control_tokens", "tokenizer_kwargs"}
# Keywords of `render_chat` besides the variables of a template.
ARGUMENTS = dict.fromkeys(
    ("add_generation_prompt", "chat_template", "continue_final_message", "documents", "messages", "template", "tools"),
    "",
)
_SPECIAL_TOKENS = frozenset(f"{kind}_token" for kind in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
_COMMON_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})


class Templated(Protocol):
    """What a Hugging Face tokenizer knows of templates. special_tokens_map: such as {"eos_token": "</s>"}."""

    @property
    def chat_template(self) -> Templates: ...

    @property
    def special_tokens_map(self) -> Mapping[str, str]: ...


def plain_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Copies of the messages as templates read them; over HTTP they come here too.

    Content becomes a string, since many templates can only join strings: a list of text parts their joined text, an
    assistant's refusal text like any other. Arguments of tool calls become objects; a `function_call` is the one tool
    call that it is. An assistant message that calls tools may have no content. Other keys (tool_call_id, name, ...)
    pass through. Raises FieldError naming messages[i].
    """
    if isinstance(messages, str | Mapping) or not isinstance(messages, Sequence):
        raise FieldError("messages", f"messages must be a list, not {type(messages).__name__}")
    if not messages:
        raise FieldError("messages", "messages is empty: a chat needs at least one message")
    check = TextsCheck()
    return [_plain_message(message, f"messages[{i}]", check) for i, message in enumerate(messages)]


def _plain_message(message: Any, where: str, check: TextsCheck) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise FieldError(where, f"{where} must be an object with role and content, not {type(message).__name__}")
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise FieldError(f"{where}.role", f"{where}.role must be a non-empty string, not {role!r}")
    plain = dict(message)
    call = plain.pop("function_call", None)
    if call is not None and role == "assistant" and not plain.get("tool_calls"):
        plain["tool_calls"] = [{"function": call}]
    calls = plain.get("tool_calls")
    if isinstance(calls, list | tuple):
        plain["tool_calls"] = [_plain_call(call, f"{where}.tool_calls[{j}]", check) for j, call in enumerate(calls)]
    return {**plain, "content": _text(plain, where)}


def _plain_call(call: Any, where: str, check: TextsCheck) -> Any:
    """A tool call with its arguments as an object; a client library's object as a dict. check: of all their texts."""
    call = _as_mapping(call)
    if not isinstance(call, Mapping):
        return call
    if "function" not in call:
        if "arguments" not in call:
            return call
        return {**call, "arguments": _arguments(call["arguments"], f"{where}.arguments", check)}
    function = _as_mapping(call["function"])
    if isinstance(function, Mapping):
        arguments = _arguments(function.get("arguments"), f"{where}.function.arguments", check)
        function = {**function, "arguments": arguments}
    return {"type": "function", **call, "function": function}


def _as_mapping(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)  # pydantic's
    return dump() if callable(dump) else value


def _arguments(arguments: Any, where: str, check: TextsCheck) -> Any:
    """The object in a JSON text; a text that is none stays as it is. FieldError for one that takes long to read, or
    does so together with those before it."""
    if not isinstance(arguments, str):
        return {} if arguments is None else arguments
    raw = (arguments or "{}").encode(errors="surrogatepass")
    try:
        check.add(raw)
        return msgspec.json.decode(raw, type=dict[str, Any])
    except JsonSizeError as error:
        raise FieldError(where, f"{where}: the arguments of tool calls up to this one have {error}") from None
    except (ValueError, RecursionError):
        return arguments


def _text(message: Mapping[str, Any], where: str) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        role = message["role"]
        return "".join(_part_text(part, role, f"{where}.content[{j}]") for j, part in enumerate(content))
    if content is None and message["role"] == "assistant":
        refusal = message.get("refusal")
        if refusal and isinstance(refusal, str):
            return refusal
        if message.get("tool_calls"):
            return ""
    problem = "is missing" if "content" not in message else f"must be text, not {_json_name(content)}"
    raise FieldError(f"{where}.content", f"{where}.content {problem} (role {message['role']!r})")


def _part_text(part: Any, role: str, where: str) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind == "refusal" and role != "assistant":
        raise FieldError(f"{where}.type", f"{where}.type: only an assistant refuses, not a {role}")
    if kind is None:
        raise FieldError(where, f"{where} has no type; only parts of type 'text' are supported")
    if kind not in ("text", "refusal"):
        raise FieldError(where, f"{where} has type {kind!r}; only parts of type 'text' are supported")
    text = part.get(kind)
    if not isinstance(text, str):
        raise FieldError(f"{where}.{kind}", f"{where}.{kind} must be a string, not {_json_name(text)}")
    return text


def _json_name(value: Any) -> str:
    return "null" if value is None else type(value).__name__


def render_chat(
    source: Templated,
    chat: Sequence[Mapping[str, Any]],
    /,
    *,
    add_generation_prompt: bool,
    chat_template: str | None = None,
    tools: Sequence[Any] | None = None,
    documents: Sequence[Any] | None = None,
    continue_final_message: bool | str = False,
    template: Mapping[str, Any] | None = None,
    **variables: Any,
) -> str:
    """The text of a chat by a template of `source`. Raises ValueError whatever goes wrong inside the template.

    chat: as `plain_messages` makes it.
    chat_template: another one, or the name of one of several. tools: JSON schemas or functions.
    continue_final_message: the text ends where the last message's content does, or its field of that name.
    variables: of the template, which must name them. template: variables that it may name or not; only what looks like
    a slip for one that it names is refused. TypeError for a variable that is refused.
    """
    chosen = chosen_template(source.chat_template, chat_template, tools is not None)
    read = template_variables(chosen) if variables or template else None
    check_variables(read, variables, template or {})
    if continue_final_message and add_generation_prompt:
        raise ValueError("continue_final_message and add_generation_prompt exclude each other")
    from minisgl.tokenizer.chat_template import render, schemas  # here, because jinja2 is not quick to import

    continued = "content" if continue_final_message is True else continue_final_message or None
    try:
        given: dict[str, Any] = {"tools": None if tools is None else schemas(tools), "documents": documents}
        given |= {**(template or {}), **variables, "add_generation_prompt": add_generation_prompt}
        return render(chosen, chat, {**source.special_tokens_map, **given}, continued)
    except Exception as error:  # the template is a program that came with the model: it may raise anything
        said = str(error) or type(error).__name__
        reason = said.encode(errors="backslashreplace").decode()  # it may quote a lone surrogate
        raise ValueError(f"the chat template refused the messages: {reason}{_suspect(chat)}") from error


def check_variables(
    read: Collection[str] | None, named: Iterable[str], others: Iterable[str], also: Mapping[str, str] = ARGUMENTS
) -> None:
    """Raise TypeError for a name in `named` that the template does not read, with the one that was probably meant.

    read: as `template_variables`. others: names that it need not read; of them only a slip for one that it reads is
    refused. also: keywords of the function that was called, each with a remark.
    """
    if reserved := sorted({*RESERVED.intersection(named), *(RESERVED | ARGUMENTS.keys()).intersection(others)}):
        raise TypeError(f"not a chat template variable: {', '.join(reserved)}")
    if read is None:
        return
    known = {**dict.fromkeys(read, ""), **also}
    for name in named:
        if name not in read and name not in _SPECIAL_TOKENS:
            variables = ", ".join(sorted(set(read) - ARGUMENTS.keys() - _SPECIAL_TOKENS)) or "none"
            hint = f"; did you mean {meant!r}{known[meant]}?" if (meant := nearest(name, known)) else ""
            raise TypeError(f"unknown keyword {name!r}; variables of the chat template: {variables}{hint}")
    for name in others:
        if meant := misspelt_variable(read, name):
            raise TypeError(f"{name!r} is no variable of the chat template; did you mean {meant!r}?")


def misspelt_variable(read: Collection[str], name: str) -> str | None:
    """The variable that a template reads and that this name is a slip for; None if there is none."""
    return likely(name, {*read, *_SPECIAL_TOKENS})


def template_variables(template: str) -> frozenset[str] | None:
    """Names of the variables that a template reads; None for one that cannot be compiled, as rendering it says."""
    from jinja2.exceptions import TemplateError

    from minisgl.tokenizer.chat_template import variables_of

    try:
        return variables_of(template)
    except (TemplateError, RecursionError):
        return None


def chosen_template(own: Templates, given: str | None, has_tools: bool) -> str:
    """The template to use: the one given, or what a model's own are for. ValueError if there is none."""
    if isinstance(own, Mapping):
        name = ("tool_use" if has_tools and "tool_use" in own else "default") if given is None else given
        template = own.get(name, given)
        if template is None:
            raise ValueError(f"this model has no default chat template; name one of {', '.join(own)}")
        return template
    template = own if given is None else given
    if template is None:
        raise ValueError("this model has no chat template: send a plain prompt instead of messages")
    return template


def _suspect(messages: Sequence[Mapping[str, Any]]) -> str:
    """A hint at the first message whose role is not a usual one; templates do not say which they stumbled over."""
    for i, message in enumerate(messages):
        if message["role"] not in _COMMON_ROLES:
            return f" (messages[{i}].role is {message['role']!r})"
    return ""

"""Chat templates: programs in Jinja that come with a model. They run in a sandbox, with the names, filters and data
that transformers gives them, but without transformers itself, whose import takes a second.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

import numpy as np
from jinja2 import Template, nodes
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

_REASONING = ("reasoning_content", "thinking", "reasoning")  # what a message's reasoning may be called
_MARK = "CONTINUE_FINAL_MESSAGE_TAG "  # behind a message that is to be continued
_EXACT: dict[type, Any] = {str: str.__str__, int: int.__int__, float: float.__float__}


def render(
    template: str, messages: Iterable[Mapping[str, Any]], variables: Mapping[str, Any], continued: str | None = None
) -> str:
    """What the template writes of these messages. It sees copies, in JSON's types.

    continued: the field of the last message where the text ends. Raises whatever the template does, TypeError and
    ValueError.
    """
    compiled = _compiled(template)
    chat = [_shown(message) for message in messages]
    if continued is None:
        return compiled.render(plain(variables), messages=chat)
    last, text = chat[-1], chat[-1].get(continued)
    if not isinstance(text, str):
        raise ValueError(f"continue_final_message: the last message has no text in {continued!r}")
    for name in _REASONING if continued in _REASONING else (continued,):
        if last.get(name) == text:
            last[name] = text + _MARK
    return _up_to_mark(compiled.render(plain(variables), messages=chat), text)


def plain(value: Any) -> Any:
    """The same in JSON's types: objects have methods, of which the sandbox does not know what they do."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, Mapping):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = map(plain, value)
        return list(items) if isinstance(value, list) else tuple(items)
    if isinstance(value, np.generic):
        return plain(value.item())
    for kind, exactly in _EXACT.items():
        if isinstance(value, kind):
            return exactly(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if callable(dump := getattr(value, "model_dump", None)):
        return plain(dump())  # pydantic's
    return f"<{type(value).__name__}>"


def schemas(tools: Iterable[Any]) -> list[Any]:
    """Tools as JSON schemas: what is no schema is a function with type hints and a docstring, or a ValueError."""
    return [tool if isinstance(tool, Mapping) else _schema_of(tool) for tool in tools]


def _schema_of(tool: Any) -> Any:
    if not (inspect.isfunction(tool) or inspect.ismethod(tool)):
        raise ValueError(f"a tool is a JSON schema or a function, not {type(tool).__name__}")
    from transformers.utils import get_json_schema

    return get_json_schema(tool)


def _shown(message: Mapping[str, Any]) -> dict[str, Any]:
    """Without fields that say nothing; reasoning by all names that templates read, whatever it was called."""
    shown = {key: value for key, value in plain(message).items() if value is not None}
    reasoning = next((shown[name] for name in _REASONING if name in shown), None)
    return shown if reasoning is None else {"thinking": reasoning, **shown, "reasoning_content": reasoning}


def _up_to_mark(rendered: str, text: str) -> str:
    if text.strip() not in rendered or _MARK.strip() not in rendered:
        raise ValueError("continue_final_message: the template does not write the last message as it is")
    place = rendered.rindex(_MARK.strip())
    before = rendered[:place]
    return before if rendered.startswith(_MARK, place) else before.rstrip()  # it trims messages


# ---- what templates find


@lru_cache(maxsize=16)
def _compiled(template: str) -> Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals |= {
        "raise_exception": _raise,
        "strftime_now": lambda form: datetime.now().strftime(form),
        "dict": _Dict(),
        "namespace": _Namespace,
    }
    return environment.from_string(template)


class _Generation(Extension):
    """{% generation %} marks what the model wrote, for training; what it encloses is written as it is."""

    tags = {"generation"}  # noqa: RUF012 - as its base has it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


class _Dict:
    """`dict` without the attributes of a class, by which a template could leave the sandbox."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


class _Namespace(Namespace):
    """`namespace` without names that are Python's own."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, *given = args  # so that a template may have a name `self`
        names = dict(*given, **kwargs)
        for name in names:
            _check_name(name)
        Namespace.__init__(self, names)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace has no name {name!r}")


def _raise(reason: str) -> None:
    raise TemplateError(reason)


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """Jinja's own escapes what HTML does."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

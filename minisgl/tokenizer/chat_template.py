"""Chat templates: programs in Jinja that come with a model. They run in a sandbox, with the names, filters and data
that transformers gives them, but without transformers itself, whose import takes a second.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

import numpy as np
from jinja2 import Template, meta, nodes
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace, pass_context
from jinja2.visitor import NodeTransformer

_REASONING = ("reasoning_content", "thinking", "reasoning")  # what a message's reasoning may be called
_MARK = "CONTINUE_FINAL_MESSAGE_TAG "  # behind a message that is to be continued
# A template that loops for ever must end. Templates take a few steps a message, some go over all messages for each.
BASE_STEPS = 200_000  # rounds of loops and calls of macros: a tenth of a second
STEPS_A_MESSAGE = 2_000
MAX_SECONDS = 10.0
MAX_CHARS = 2**26  # that a template writes, or makes in one operation
_CLOCK_STEPS = 1024  # from one look at the clock to the next
_STEP, _COUNTED, _JOINED = "_minisgl_step", "_minisgl_counted", "_minisgl_joined"  # what `_Bounded` puts into templates
_SIZED = (str, list, tuple)
_EXACT: dict[type, Any] = {str: str.__str__, int: int.__int__, float: float.__float__}


def render(
    template: str, messages: Iterable[Mapping[str, Any]], variables: Mapping[str, Any], continued: str | None = None
) -> str:
    """What the template writes of these messages. It sees copies, in JSON's types.

    continued: the field of the last message where the text ends. Raises whatever the template does, TypeError and
    ValueError; also for a template that takes too many steps, too long, or writes too much.
    """
    compiled = _compiled(template)
    chat = [_shown(message) for message in messages]
    if continued is None:
        return _written(compiled, variables, chat)
    last, text = chat[-1], chat[-1].get(continued)
    if not isinstance(text, str):
        raise ValueError(f"continue_final_message: the last message has no text in {continued!r}")
    for name in _REASONING if continued in _REASONING else (continued,):
        if last.get(name) == text:
            last[name] = text + _MARK
    return _up_to_mark(_written(compiled, variables, chat), text)


def _written(compiled: Template, variables: Mapping[str, Any], chat: list[dict[str, Any]]) -> str:
    parts, num_chars = [], 0
    for part in compiled.generate(plain(variables), messages=chat, **{_STEP: _Steps(len(chat)).take}):
        parts.append(part)
        num_chars += len(part)
        _check_size(num_chars)
    return "".join(parts)


def _check_size(num_chars: int) -> None:
    if num_chars > MAX_CHARS:
        raise ValueError(f"it writes more than {MAX_CHARS} characters")


class _Steps:
    """Counts the steps of one rendering; ValueError when they are too many or take too long."""

    def __init__(self, num_messages: int) -> None:
        self._allowed = BASE_STEPS + STEPS_A_MESSAGE * num_messages + 4 * num_messages**2
        self._taken = 0
        self._deadline = time.monotonic() + MAX_SECONDS

    def take(self) -> None:
        self._taken += 1
        if self._taken > self._allowed:
            raise ValueError(f"it does not end: {self._allowed} steps of loops and macros were taken")
        if self._taken % _CLOCK_STEPS == 0 and time.monotonic() > self._deadline:
            raise ValueError(f"it does not end within {MAX_SECONDS:g} s")


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


@lru_cache(maxsize=16)
def variables_of(template: str) -> frozenset[str]:
    """Names of the variables that a template reads, `messages` left out. Raises jinja2's error for a broken one."""
    environment = ImmutableSandboxedEnvironment(extensions=[_Generation, loopcontrols])
    names = meta.find_undeclared_variables(environment.parse(template))
    return frozenset(names - environment.globals.keys() - {"messages", "raise_exception", "strftime_now"})


# ---- what templates find


@lru_cache(maxsize=16)
def _compiled(template: str) -> Template:
    environment = _Environment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    environment.filters |= {"tojson": _tojson, _COUNTED: _counted, _JOINED: _joined}
    environment.globals |= {
        "raise_exception": _raise,
        "strftime_now": lambda form: datetime.now().strftime(form),
        "dict": _Dict(),
        "namespace": _Namespace,
    }
    return environment.from_string(_Bounded().visit(environment.parse(template)))


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox, in which no single operation makes a text or a number of any size."""

    intercepted_binops = frozenset({"+", "*", "**"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "+":
            if isinstance(left, _SIZED) and isinstance(right, _SIZED):
                _check_size(len(left) + len(right))
            return left + right
        if isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length() * right if operator == "**" else left.bit_length() + right.bit_length()
            _check_size(bits)
        elif operator == "*":
            for some, times in ((left, right), (right, left)):
                if isinstance(some, _SIZED) and isinstance(times, int):
                    _check_size(len(some) * times)
        return super().call_binop(context, operator, left, right)


class _Bounded(NodeTransformer):
    """Has each round of a loop and each call of a macro counted, and `~` check what it makes.

    By filters, which cost less than functions in a sandbox.
    """

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 - named after the node
        self.generic_visit(node)
        if node.recursive:  # goes over more than `iter`
            return _with_step(node)
        node.iter = nodes.Filter(node.iter, _COUNTED, [], [], None, None, lineno=node.lineno)
        return node

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _with_step(node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return nodes.Filter(node.nodes[0], _JOINED, node.nodes[1:], [], None, None, lineno=node.lineno)


def _with_step(node: nodes.For | nodes.Macro) -> nodes.Node:
    step = nodes.Call(nodes.Name(_STEP, "load", lineno=node.lineno), [], [], None, None, lineno=node.lineno)
    node.body.insert(0, nodes.ExprStmt(step, lineno=node.lineno))
    return node


@pass_context
def _counted(context: Context, items: Iterable[Any]) -> Iterator[Any]:
    step = context[_STEP]
    for item in items:
        step()
        yield item


def _joined(*parts: Any) -> str:
    texts = [str(part) for part in parts]
    _check_size(sum(map(len, texts)))
    return "".join(texts)


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

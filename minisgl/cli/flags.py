"""Command-line flags made from the fields of the config dataclasses: a new field is a new flag.

A flag that is not given is None and is not passed on, so every default stands in one place, the dataclass.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import typer
from rich.markup import escape

from minisgl.cli.choices import choice_option
from minisgl.core import SamplingParams
from minisgl.engine.config import EngineConfig
from minisgl.scheduler.config import SchedulerConfig
from minisgl.server.config import ServerConfig
from minisgl.simulate.config import SimulationConfig

Fields = dict[str, Any]
_FIELD = re.compile(r"(?<![\w.-])\w+(?==)")
GROUPS: dict[str, tuple[str, tuple[type, ...]]] = {
    "config": ("Engine", (EngineConfig, SchedulerConfig)),
    "server": ("Server", (ServerConfig,)),
    "sampling": ("Sampling", (SamplingParams,)),
    "simulation": ("Simulation", (SimulationConfig,)),
}


def with_flags(command: Callable[..., None]) -> Callable[..., None]:
    """`command` as typer wants it: its parameters that are named in GROUPS, dicts of fields, become flags."""
    signature = inspect.signature(command, eval_str=True)
    own = [parameter for name, parameter in signature.parameters.items() if name not in GROUPS]
    flags = {name: _flags_of(*GROUPS[name]) for name in signature.parameters if name in GROUPS}

    @functools.wraps(command)
    def run(**values: Any) -> None:
        with _flags_in_errors(GROUPS[name][1] for name in flags):
            groups = {name: _given(group, values) for name, group in flags.items()}
            command(**{parameter.name: values[parameter.name] for parameter in own}, **groups)

    parameters = [*own, *(flag for group in flags.values() for flag in group.values())]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


@contextlib.contextmanager
def _flags_in_errors(groups: Iterable[tuple[type, ...]]) -> Iterator[None]:
    """A ValueError that says `field=value`, of a field of these configs, comes out as `--flag=value`."""
    names = {field.name: flag_of(field) for configs in groups for each in configs for field in dataclasses.fields(each)}
    try:
        yield
    except ValueError as error:
        text = _FIELD.sub(lambda found: names.get(found[0], found[0]), str(error))
        if text == str(error):
            raise
        raise ValueError(text) from error


def _flags_of(panel: str, configs: tuple[type, ...]) -> dict[str, inspect.Parameter]:
    return {
        field.name: _make_flag(field, hint, panel) for config in configs for field, hint in _fields_with_hints(config)
    }


def _fields_with_hints(config: type) -> list[tuple[dataclasses.Field[Any], Any]]:
    hints = get_type_hints(config)
    return [(field, hints[field.name]) for field in dataclasses.fields(config)]


def _make_flag(field: dataclasses.Field[Any], hint: Any, panel: str) -> inspect.Parameter:
    name = flag_of(field)
    declaration = f"{name}/--no-{name.removeprefix('--')}" if hint in (bool, bool | None) else name
    settings: Fields = {"help": escape(_help_of(field, hint)), "rich_help_panel": panel, "show_default": False}
    choices = field.metadata["choices"]
    option = choice_option(declaration, choices, **settings) if choices else typer.Option(declaration, **settings)
    kind = str if choices else _flag_type(hint)
    annotation = Annotated[kind | None, option]  # type: ignore[valid-type]
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def flag_of(field: dataclasses.Field[Any]) -> str:
    """Its name on the command line."""
    return "--" + (field.metadata["flag"] or field.name).replace("_", "-")


def _help_of(field: dataclasses.Field[Any], hint: Any) -> str:
    """The field's own help, then its default unless that is None or (): the help itself says what those mean."""
    text: str = field.metadata["help"]
    if _kind(hint) is Mapping:
        return f"{text}: ID=BIAS, may be repeated"
    if _kind(hint) is Sequence:
        return f"{text}; may be repeated"
    return text if field.default is None else f"{text} (default: {field.default})"


def _flag_type(hint: Any) -> Any:
    kind = _kind(hint)
    if kind is Sequence:
        return list[int] if int in _members(hint) else list[str]
    return list[str] if kind is Mapping else kind


def _kind(hint: Any) -> Any:
    """Sequence or Mapping if one of the union's members is; else its first member."""
    members = [get_origin(member) or member for member in _union(hint)]
    return next((member for member in members if member in (Sequence, Mapping)), members[0])


def _members(hint: Any) -> tuple[Any, ...]:
    return tuple(argument for member in _union(hint) for argument in get_args(member))


def _union(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _given(group: dict[str, inspect.Parameter], values: Mapping[str, Any]) -> Fields:
    """What the user gave, as the dataclass wants it."""
    return {name: _to_field(name, values[name]) for name in group if values[name] is not None}


def _to_field(name: str, value: Any) -> Any:
    if name == "logit_bias":
        return dict(_parse_bias(text) for text in value)
    return tuple(value) if isinstance(value, list) else value


def _parse_bias(text: str) -> tuple[int, float]:
    token_id, _, bias = text.partition("=")
    try:
        return int(token_id), float(bias)
    except ValueError:
        raise ValueError(f"--logit-bias {text!r} is not ID=BIAS, a token id and a number") from None

"""Misspelt fields of bodies: an unknown field that is a slip for a known one is refused, any other one ignored.

A body without unknown fields costs nothing: it is decoded by types that take no others (`_strict`), and looked through
again only where these find one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from types import UnionType
from typing import Annotated, Any, NamedTuple, TypeVar, Union, cast, get_args, get_origin

import msgspec

from minisgl.server.errors import ApiError
from minisgl.utils.spelling import likely

# Fields of other servers and their clients that look like slips for ours. They are no slips, and stay ignored.
OF_OTHERS = frozenset(
    {
        "best_of_n",  # TensorRT-LLM
        "context",  # in a message: Azure
        "mode",  # text-generation-webui
        "models",  # OpenRouter
        "speed",  # Anthropic
        "top_a",  # text-generation-webui, KoboldCpp, TabbyAPI, OpenRouter
        "top_n",  # Fireworks
        "typ_p",  # llama.cpp
    }
)
MAX_CHECKED = 128  # different unknown names in one body: each takes up to a tenth of a millisecond
MAX_NAME_LENGTH = 64
Structs = tuple[type[msgspec.Struct], ...]
Checked = set[tuple[str, Structs]]  # names that were looked up, each by what it may be a field of
T = TypeVar("T", bound=msgspec.Struct)


def decode_spelt(raw: bytes, struct: type[T]) -> T:
    """The JSON of a body as this struct; unknown fields are ignored.

    ApiError 400, with param, for one that is a slip for a known field, unless it is null. Raises msgspec's errors.
    """
    try:
        return cast(T, msgspec.json.decode(raw, type=_strict(struct)))
    except msgspec.ValidationError as error:
        if not _names_unknown(error):
            raise
    _refuse(_slips_here(msgspec.json.decode(raw, type=dict[str, msgspec.Raw]), (struct,), "", set()))
    try:  # mostly that was all
        return cast(T, msgspec.json.decode(raw, type=_strict(struct, forbids=False)))
    except msgspec.ValidationError as error:
        if not _names_unknown(error):
            raise
    _refuse(_slips(msgspec.Raw(raw.lstrip()), _Shape((struct,)), "", set()))
    return msgspec.json.decode(raw, type=struct)


def _refuse(slips: Iterator[tuple[str, str]]) -> None:
    for name, meant in slips:
        raise ApiError(400, f"{name}: no such field; did you mean {meant}?", param=name)


def _names_unknown(error: msgspec.ValidationError) -> bool:
    """Whether it is the one of a strict type about an unknown field."""
    return str(error).startswith("Object contains unknown field ")


@cache
def _strict(struct: type[Any], forbids: bool = True) -> type[Any]:
    """Copy of a struct, and of the structs in it, that rejects unknown fields. forbids: at its own level too."""
    fields: list[Any] = []
    for field in msgspec.structs.fields(struct):  # all of them, so that they keep their order
        assert field.default_factory is msgspec.NODEFAULT, f"{struct.__name__}.{field.name} has a default to be made"
        type_ = _strict_type(field.type)
        fields.append((field.name, type_) if field.required else (field.name, type_, field.default))
    return msgspec.defstruct(struct.__name__, fields, bases=(struct,), kw_only=True, forbid_unknown_fields=forbids)


def _strict_type(type_: Any) -> Any:
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        return _strict(type_)
    origin, args = get_origin(type_), get_args(type_)
    if origin is Annotated:
        return Annotated[(_strict_type(args[0]), *args[1:])]
    if origin in (Union, UnionType):
        return Union[tuple(map(_strict_type, args))]  # noqa: UP007 - of a tuple
    return list[_strict_type(args[0])] if origin is list else type_  # type: ignore[misc]


class _Shape(NamedTuple):
    """Structs that a value may be, and the shape of its items if it may be a list of what has some."""

    structs: Structs = ()
    items: _Shape | None = None


def _shape(type_: Any) -> _Shape | None:
    """None for a type without structs in it."""
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        return _Shape((type_,))
    origin, args = get_origin(type_), get_args(type_)
    if origin is Annotated:
        return _shape(args[0])
    if origin is list:
        items = _shape(args[0])
        return None if items is None else _Shape((), items)
    shapes = [shape for arg in args if (shape := _shape(arg))] if origin in (Union, UnionType) else []
    if not shapes:
        return None
    structs = tuple(struct for shape in shapes for struct in shape.structs)
    return _Shape(structs, next((shape.items for shape in shapes if shape.items), None))


@cache
def _fields(structs: Structs) -> dict[str, _Shape | None]:
    """Known fields of any of these."""
    fields = {field.encode_name: _shape(field.type) for each in structs for field in msgspec.structs.fields(each)}
    return fields | {tag: None for each in structs if (tag := each.__struct_config__.tag_field)}


@lru_cache(maxsize=4096)
def _meant(name: str, structs: Structs) -> str | None:
    return None if name in OF_OTHERS else likely(name, _fields(structs))


def _slips(raw: msgspec.Raw, shape: _Shape, where: str, checked: Checked) -> Iterator[tuple[str, str]]:
    """Full names of misspelt fields, each with the known one."""
    first = bytes(memoryview(raw)[:1])
    if first == b"[" and shape.items is not None:
        for i, item in enumerate(msgspec.json.decode(raw, type=list[msgspec.Raw])):
            yield from _slips(item, shape.items, f"{where}[{i}]", checked)
    elif first == b"{" and shape.structs:
        values = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        yield from _slips_here(values, shape.structs, where, checked)
        for name, inner in _fields(shape.structs).items():
            if inner is not None and name in values:
                yield from _slips(values[name], inner, f"{where}.{name}" if where else name, checked)


def _slips_here(
    values: Mapping[str, msgspec.Raw], structs: Structs, where: str, checked: Checked
) -> Iterator[tuple[str, str]]:
    """Misspelt names at the top level of one object. Nothing new is looked up once MAX_CHECKED names were."""
    known = _fields(structs)
    for name, value in values.items():
        if name in known or len(name) > MAX_NAME_LENGTH:
            continue
        if (name, structs) not in checked:
            if len(checked) == MAX_CHECKED:
                continue
            checked.add((name, structs))
        if (meant := _meant(name, structs)) and bytes(value) != b"null":
            yield f"{where}.{name}" if where else name, meant

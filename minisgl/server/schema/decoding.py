"""From the bytes of a request's body to a checked object, or to an error that names the field."""

from __future__ import annotations

import gc
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar, TypeVar

import msgspec

from minisgl.core import Limits
from minisgl.server.errors import MAX_MESSAGE_LEN, ApiError
from minisgl.server.schema.spelling import decode_spelt
from minisgl.utils.logging import get_logger

logger = get_logger(__name__)
T = TypeVar("T", bound="Body")
_AT = re.compile(r" - at (?:`key` in )?`\$\.?([^`]*)`$")
_INDEX = re.compile(r"\[[^]]*\]")
_MISSING = re.compile(r"^Object missing required field `([^`]+)`$")


class Body(msgspec.Struct, kw_only=True):
    """The body of a request. A null is as good as an absent field; a field that is not here is ignored, unless its name
    is a slip for one that is.

    ONLY: fields that are known, and taken only where they change nothing: what they may be. What may be nothing but
    null, by its type, need not be there; if it is, by its full name ("a.b"), it says what to do instead.

    PROMPT_IDS: fields that may hold a prompt in token ids.
    """

    ONLY: ClassVar[dict[str, str]] = {}
    PROMPT_IDS: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def check_num_ids(cls, name: str, num: int, limits: Limits) -> None:
        """Raise ContextLengthError, or ApiError 400, for a field of so many token ids, before they are decoded."""
        if name in cls.PROMPT_IDS:
            limits.check_len(num)


def decode(raw: bytes, body_type: type[T]) -> T:
    """The body as an object of `body_type`. ApiError 400, with param, for whatever is wrong with it."""
    try:
        raw.decode()  # msgspec does not look into the fields that it skips
        with _no_collection():
            body = decode_spelt(raw, body_type)
    except msgspec.ValidationError as error:
        raise _wrong_field(_shortened(str(error)), body_type) from None
    except RecursionError:
        raise ApiError(400, "the body is nested too deeply") from None
    except ValueError as error:
        raise ApiError(400, f"the body is not valid JSON in UTF-8: {_reason(error)}") from None
    _log_unknown(raw, body_type)
    return body


@contextmanager
def _no_collection() -> Iterator[None]:
    """Nothing of a body that is being decoded is garbage, but a collection would look at all of it time and again: four
    seconds for millions of small lists, in which nobody else is served."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _shortened(message: str) -> str:
    """A message that quotes a value ends with its place."""
    return message if len(message) <= 2 * MAX_MESSAGE_LEN else f"{message[:100]}...{message[-MAX_MESSAGE_LEN:]}"


def _wrong_field(message: str, body_type: type[Body]) -> ApiError:
    at = _AT.search(message)
    reason, param = (message[: at.start()], at[1]) if at else (message, "")
    if missing := _MISSING.match(reason):
        param = f"{param}.{missing[1]}" if param else missing[1]
        reason = "is required"
    name = _INDEX.sub("", param)
    if reason.startswith("Expected `null`"):
        only: str | None = body_type.ONLY.get(name, "leave it out")
    else:
        only = body_type.ONLY.get(name.partition(".")[0])
    if only is not None:
        return ApiError(400, f"{param} is not supported: {only}", param=param, code="unsupported_parameter")
    return ApiError(400, f"{param or 'the body'}: {reason}", param=param or None)


def _reason(error: ValueError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"byte {error.start} is not UTF-8"
    return str(error)


def _log_unknown(raw: bytes, body_type: type[Body]) -> None:
    if not logger.isEnabledFor(logging.DEBUG):
        return
    unknown = msgspec.json.decode(raw, type=dict[str, msgspec.Raw]).keys() - set(body_type.__struct_encode_fields__)
    if unknown:
        logger.debug("ignored fields: %s", sorted(unknown))

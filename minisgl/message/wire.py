"""Messages as bytes: msgpack, made and checked by msgspec against the types of the messages. Nothing is ever pickled.

A frame is a list of [type name, messages of it], in order. Arrays are their bytes; a `TokenReply` and `NextTokens` are
arrays without names, a dataclass is a map. `SamplingParams` are checked again where they arrive.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import numpy as np

from minisgl.message.questions import (
    ActivityMsg,
    ActivityReply,
    CountReply,
    ExplainMsg,
    ExplainReply,
    NodeMsg,
    NodeReply,
    PathMsg,
    PathReply,
    ProbeMsg,
    PurgeMsg,
    StatsMsg,
    StatsReply,
    TreeMsg,
    TreeReply,
)
from minisgl.message.startup import EngineFailed, EngineReady, LoadProgress
from minisgl.message.types import AbortMsg, FinishMsg, NextTokens, Reply, RequestMsg, ShutdownMsg, TokenReply, UserMsg

T = TypeVar("T")
News = Reply | LoadProgress | EngineReady | EngineFailed


class _Group(NamedTuple):
    kind: str
    messages: msgspec.Raw


class Codec(Generic[T]):
    """Messages of the given types to a frame and back. Not to be used by two threads at once."""

    def __init__(self, *types: type) -> None:
        self._encoder = msgspec.msgpack.Encoder(enc_hook=_array_to_bytes)
        self._groups = msgspec.msgpack.Decoder(list[_Group])
        self._decoders = {kind.__name__: _decoder(kind) for kind in types}

    def encode(self, messages: Sequence[T]) -> bytes:
        """The frame. ValueError for what has no bytes: a lone surrogate, a number over 64 bits."""
        groups = [(kind.__name__, list(group)) for kind, group in groupby(messages, type)]
        try:
            return self._encoder.encode(groups)
        except OverflowError as error:
            raise ValueError(f"a message has a number over 64 bits: {error}") from error

    def decode(self, frame: bytes) -> list[T]:
        """The messages. ValueError, saying where, for bytes that are not messages of these types."""
        try:
            messages: list[T] = []
            for group in self._groups.decode(frame):
                messages += self._decoder(group.kind).decode(group.messages)
            return messages
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"a frame of {len(frame)} bytes cannot be read: {error}") from error

    def _decoder(self, kind: str) -> msgspec.msgpack.Decoder[Any]:
        decoder = self._decoders.get(kind)
        if decoder is None:
            raise ValueError(f"a message of unknown type {kind!r}; known are {', '.join(self._decoders)}")
        return decoder


def request_codec() -> Codec[RequestMsg]:
    """For what goes to an engine process."""
    questions = StatsMsg, ProbeMsg, ExplainMsg, ActivityMsg, PurgeMsg, TreeMsg, NodeMsg, PathMsg
    return Codec(UserMsg, AbortMsg, FinishMsg, *questions, ShutdownMsg)


def news_codec() -> Codec[News]:
    """For what comes from it."""
    answers = StatsReply, CountReply, ExplainReply, ActivityReply, TreeReply, NodeReply, PathReply
    return Codec(TokenReply, NextTokens, *answers, LoadProgress, EngineReady, EngineFailed)


def _decoder(kind: type) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(list[kind], dec_hook=_bytes_to_array)  # type: ignore[valid-type]


def _array_to_bytes(value: Any) -> bytes:
    if isinstance(value, np.ndarray):
        return value.astype("<i4", copy=False).tobytes()
    raise ValueError(f"no message holds a {type(value).__name__}: {value!r}")


def _bytes_to_array(kind: Any, value: Any) -> Any:
    if not isinstance(value, bytes) or len(value) % 4:
        raise ValueError(f"token ids are not {type(value).__name__} {repr(value)[:40]}")
    return np.frombuffer(value, "<i4").astype(np.int32)  # a copy: that of the frame cannot be written to

"""What a server says of itself, of its model, and of texts and tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec


class Model(msgspec.Struct, kw_only=True):
    """max_model_len: the context length, prompt and answer together, in tokens; of a smaller KV pool, what it holds.

    sampling_defaults: how tokens are chosen where a request does not say.
    """

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "minisgl"
    max_model_len: int
    sampling_defaults: Mapping[str, int | float]


class ModelList(msgspec.Struct):
    data: list[Model]
    object: Literal["list"] = "list"


class Tokens(msgspec.Struct):
    """token_strs: of each token for itself, if asked for."""

    tokens: list[int]
    count: int
    max_model_len: int
    token_strs: list[str] | None = None


class Text(msgspec.Struct):
    """The same text under the names that vLLM and SGLang give it."""

    prompt: str
    text: str


class ModelInfo(msgspec.Struct, kw_only=True):
    """In SGLang's names."""

    model_path: str
    tokenizer_path: str
    is_generation: bool = True
    max_model_len: int
    vocab_size: int


class ServerInfo(msgspec.Struct, kw_only=True):
    """engine: what was resolved when it was loaded. internal_states: one object, with counters and sizes as of now."""

    version: str
    model_path: str
    max_total_num_tokens: int
    engine: Any
    internal_states: list[dict[str, Any]]


class Version(msgspec.Struct):
    version: str


class Flushed(msgspec.Struct):
    success: bool = True


class Aborted(msgspec.Struct):
    """aborted: how many requests."""

    aborted: int


class Alive(msgspec.Struct):
    status: Literal["ok"] = "ok"


class Health(msgspec.Struct):
    status: Literal["ok", "loading", "draining", "dead"]


class ErrorDetail(msgspec.Struct):
    """param: the field that is wrong. code: a word for programs."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(msgspec.Struct):
    error: ErrorDetail

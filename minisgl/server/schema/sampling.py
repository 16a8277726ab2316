"""What chats and completions have in common: how to choose tokens, when to stop, how to answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from minisgl.core import FieldError, SamplingParams, with_advice
from minisgl.server.errors import ApiError
from minisgl.server.schema.fields import (
    CacheSalt,
    Explain,
    LogitBias,
    MaxTokens,
    MinP,
    MinTokens,
    NumChoices,
    Penalty,
    Priority,
    RepetitionPenalty,
    Seed,
    Stop,
    StopTokenIds,
    Temperature,
    TopK,
    TopP,
)
from minisgl.server.schema.unsupported import Unsupported

Defaults = Mapping[str, int | float]
_ANSWER_FIELDS = {"max_tokens", "logprobs", "prompt_logprobs"}  # mean something else, or have another default, here
_SAMPLING = [field.name for field in dataclasses.fields(SamplingParams) if field.name not in _ANSWER_FIELDS]


class StreamOptions(msgspec.Struct):
    """include_usage: one more chunk at the end, with usage and no choices. continuous_usage_stats: usage in each."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class GeneratingBody(Unsupported, kw_only=True):
    """A chat or a completion. The fields of OpenAI's reference, then those that engines share."""

    model: (
        Annotated[str, Meta(description="The served name; absent or empty means the model that there is.")] | None
    ) = None
    best_of: Annotated[NumChoices, Meta(description="As many as n: choices are not ranked.")] | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: LogitBias | None = None
    max_tokens: MaxTokens | None = None
    metadata: Any = None
    n: NumChoices | None = None
    presence_penalty: Penalty | None = None
    seed: Seed | None = None
    service_tier: Any = None
    stop: Stop | None = None
    store: Any = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    user: Any = None

    cache_salt: CacheSalt | None = None
    explain: Explain | None = None
    ignore_eos: Annotated[bool, Meta(description="Go on after the model's end tokens.")] | None = None
    min_p: MinP | None = None
    min_tokens: MinTokens | None = None
    priority: Priority | None = None
    repetition_penalty: RepetitionPenalty | None = None
    return_token_ids: (
        Annotated[bool, Meta(description="Say which tokens the prompt and each piece of the answer are.")] | None
    ) = None
    skip_special_tokens: bool | None = None
    stop_token_ids: StopTokenIds | None = None
    top_k: TopK | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stream_options is not None and not self.stream:
            raise ApiError(400, "stream_options is only allowed with stream: true", param="stream_options")
        self._check_best_of()

    def _check_best_of(self) -> None:
        """ApiError 400 for another number than n, which OpenAI's reference asks for at least."""
        n, best_of = self.n or 1, self.best_of
        if best_of is None or best_of == n:
            return
        if best_of < n:
            raise ApiError(400, f"best_of={best_of} is less than n={n}", param="best_of")
        message = f"best_of={best_of} is not supported: only as many as n={n}"
        raise ApiError(400, message, param="best_of", code="unsupported_parameter")

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def continuous_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.continuous_usage_stats)

    def sampling(
        self,
        defaults: Defaults,
        max_tokens: int,
        logprobs: int | None,
        prompt_logprobs: int | None = None,
        max_name: str = "max_tokens",
    ) -> SamplingParams:
        """The engine's form of it. ApiError 400 for fields that contradict each other. max_name: whence max_tokens."""
        check_min_tokens("min_tokens", self.min_tokens, max_name, max_tokens)
        given = {name: getattr(self, name) for name in _SAMPLING if getattr(self, name) is not None}
        return make_params(
            with_advice(given, defaults) | {"max_tokens": max_tokens},
            logprobs=logprobs,
            prompt_logprobs=prompt_logprobs,
        )


def make_params(given: dict[str, Any], prefix: str = "", **more: Any) -> SamplingParams:
    """SamplingParams, or ApiError 400. prefix: of the names that the fields have in the body."""
    try:
        return SamplingParams(**given, **more)
    except FieldError as error:
        raise wrong_field(error, prefix) from None


def wrong_field(error: FieldError, prefix: str = "") -> ApiError:
    """ApiError 400 whose param is the field. prefix: of its name in the body."""
    return ApiError(400, f"{prefix}{error}", param=f"{prefix}{error.field}")


def check_min_tokens(min_name: str, min_tokens: int | None, max_name: str, max_tokens: int) -> None:
    """ApiError 400, in the names of the body, for a minimum that is over the maximum."""
    if min_tokens is not None and min_tokens > max_tokens:
        raise ApiError(400, f"{min_name}={min_tokens} is more than {max_name}={max_tokens}", param=min_name)

"""POST /generate, in SGLang's form."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from minisgl.core import SamplingParams, with_advice
from minisgl.core.sampling_params import MAX_LOGPROBS
from minisgl.llm.encoder import Prompt
from minisgl.server.errors import ApiError
from minisgl.server.schema.completions import split_prompts
from minisgl.server.schema.decoding import Body
from minisgl.server.schema.fields import (
    MAX_PROMPTS,
    CacheSalt,
    Explain,
    LogitBias,
    MaxTokens,
    MinP,
    MinTokens,
    MustBeFalse,
    NumChoices,
    Penalty,
    Priority,
    RepetitionPenalty,
    Seed,
    Stop,
    StopTokenIds,
    Temperature,
    TokenId,
    TopK,
    TopP,
)
from minisgl.server.schema.sampling import Defaults, check_min_tokens, make_params
from minisgl.server.schema.unsupported import Empty, refuse_true

DEFAULT_NEW_TOKENS = 128
_RENAMED = {"max_new_tokens": "max_tokens", "min_new_tokens": "min_tokens", "sampling_seed": "seed"}


class GenerateSampling(msgspec.Struct, kw_only=True):
    """How to choose tokens and when to stop, in SGLang's names. max_new_tokens is 128 where none is given."""

    frequency_penalty: Penalty | None = None
    ignore_eos: bool | None = None
    logit_bias: LogitBias | None = None
    max_new_tokens: MaxTokens | None = None
    min_new_tokens: MinTokens | None = None
    min_p: MinP | None = None
    n: NumChoices | None = None
    presence_penalty: Penalty | None = None
    repetition_penalty: RepetitionPenalty | None = None
    sampling_seed: Seed | None = None
    skip_special_tokens: bool | None = None
    stop: Stop | None = None
    stop_token_ids: StopTokenIds | None = None
    temperature: Temperature | None = None
    top_k: TopK | None = None
    top_p: TopP | None = None

    ebnf: None = None
    json_schema: None = None
    no_stop_trim: MustBeFalse | None = None
    regex: None = None
    structural_tag: None = None

    cache_salt: None = None  # of the body, where they are taken
    priority: None = None

    def __post_init__(self) -> None:
        refuse_true("sampling_params.no_stop_trim", self.no_stop_trim)

    def given(self) -> dict[str, Any]:
        """What was given, in the names of `SamplingParams`."""
        names = [field for field in self.__struct_fields__ if field != "no_stop_trim"]
        return {_RENAMED.get(name, name): value for name in names if (value := getattr(self, name)) is not None}


class GenerateRequest(Body, kw_only=True):
    """Prompts as text or input_ids, one or a list. In a stream every event has the whole text so far."""

    PROMPT_IDS: ClassVar[tuple[str, ...]] = ("input_ids",)
    ONLY: ClassVar[dict[str, str]] = {
        "audio_data": "only an empty list",
        "image_data": "only an empty list",
        "lora_path": "there are no adapters",
        "sampling_params.cache_salt": "it belongs in the body, beside sampling_params",
        "sampling_params.priority": "it belongs in the body, beside sampling_params",
        "video_data": "only an empty list",
    }

    text: str | Annotated[list[str], Meta(min_length=1, max_length=MAX_PROMPTS)] | None = None
    input_ids: Annotated[list[TokenId | list[TokenId]], Meta(min_length=1)] | None = None
    sampling_params: GenerateSampling | Annotated[list[GenerateSampling], Meta(max_length=MAX_PROMPTS)] | None = None
    stream: bool | None = None
    return_logprob: bool | None = None
    logprob_start_len: (
        Annotated[int, Meta(ge=-1, description="Logprobs of the prompt from here on; -1, the default, is none.")] | None
    ) = None
    top_logprobs_num: Annotated[int, Meta(ge=0, le=MAX_LOGPROBS)] | None = None
    return_text_in_logprobs: bool | None = None
    rid: (
        Annotated[
            str | Annotated[list[str], Meta(max_length=MAX_PROMPTS)],
            Meta(description="Names by which /abort_request finds the request."),
        ]
        | None
    ) = None
    cache_salt: CacheSalt | None = None
    explain: Explain | None = None
    priority: Priority | None = None

    audio_data: Empty | None = None
    image_data: Empty | None = None
    input_embeds: None = None
    lora_path: Literal[""] | Annotated[list[Literal[""] | None], Meta(max_length=MAX_PROMPTS)] | None = None
    video_data: Empty | None = None

    def __post_init__(self) -> None:
        if (self.text is None) == (self.input_ids is None):
            raise ApiError(400, "one of text and input_ids is required", param="text")
        if isinstance(self.sampling_params, list) and len(self.sampling_params) != len(self.prompts()):
            num = len(self.sampling_params)
            raise ApiError(400, f"{num} sampling_params for {len(self.prompts())} prompts", param="sampling_params")

    @property
    def is_list(self) -> bool:
        """Whether prompts came as a list, so that the answer is one."""
        if self.text is not None:
            return isinstance(self.text, list)
        return self.input_ids is not None and isinstance(self.input_ids[0], list)

    @property
    def wants_prompt_logprobs(self) -> bool:
        return bool(self.return_logprob) and self.logprob_start_len is not None and self.logprob_start_len >= 0

    @property
    def names(self) -> tuple[str, ...]:
        """What the client calls it."""
        return (self.rid,) if isinstance(self.rid, str) else tuple(self.rid or ())

    @property
    def num_sequences(self) -> int:
        """Choices of all prompts. ApiError 400 as `prompts`."""
        return sum(sampling.n or 1 for sampling in self._samplings())

    def prompts(self) -> list[Prompt]:
        if self.text is not None:
            return split_prompts("text", self.text)
        return split_prompts("input_ids", self.input_ids or [])

    def params(self, defaults: Defaults) -> list[SamplingParams]:
        """One for each prompt. ApiError 400 for fields that contradict each other."""
        return [self._params(sampling, defaults, self.prefix(i)) for i, sampling in enumerate(self._samplings())]

    def prefix(self, index: int) -> str:
        """With which the names of the fields begin that say how to sample for this prompt."""
        return f"sampling_params[{index}]." if isinstance(self.sampling_params, list) else "sampling_params."

    def _samplings(self) -> list[GenerateSampling]:
        given = self.sampling_params or GenerateSampling()
        return given if isinstance(given, list) else [given] * len(self.prompts())

    def _params(self, sampling: GenerateSampling, defaults: Defaults, prefix: str) -> SamplingParams:
        fields = {"max_tokens": DEFAULT_NEW_TOKENS} | with_advice(sampling.given(), defaults)
        max_name = f"{prefix}max_new_tokens"
        check_min_tokens(f"{prefix}min_new_tokens", sampling.min_new_tokens, max_name, fields["max_tokens"])
        top = (self.top_logprobs_num or 0) if self.return_logprob else None
        return make_params(fields, prefix, logprobs=top, prompt_logprobs=top if self.wants_prompt_logprobs else None)


class Generated(msgspec.Struct):
    """One text. meta_info: id, finish_reason, prompt_tokens, completion_tokens, cached_tokens, e2e_latency, logprobs,
    and with explain: true its explanation, a PromptExplanation.

    index: in a stream of several texts, which one.
    """

    text: str
    output_ids: list[int]
    meta_info: dict[str, Any]
    index: int | msgspec.UnsetType = msgspec.UNSET

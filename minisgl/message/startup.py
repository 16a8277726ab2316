"""What an engine process says before its first token: how far it is, what it became, or why it could not."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """An engine that is ready, for people and for the tokenizer's side.

    model: as it was asked for. path: where its files are. max_seq_len: the context in tokens. pool_len: tokens that the
    KV pool holds. end_token_ids: sorted. sampling_defaults: fields of `SamplingParams` that the model's
    files advise. heeds_priority: whether requests may have one. explains: whether it is said why prompts are
    computed. versions: of the packages that compute. pid: of the engine's process.
    """

    model: str
    path: str
    vocab_size: int
    max_seq_len: int
    pool_len: int
    page_size: int
    num_pages: int
    end_token_ids: tuple[int, ...]
    dtype: str
    device: str
    cache_type: str
    overlap: bool
    max_running_req: int
    max_extend_tokens: int
    policy: str
    max_overtakes: int
    lookahead: int
    eviction: str
    reserve: str
    heeds_priority: bool
    explains: bool
    pid: int
    sampling_defaults: dict[str, int | float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """stage: what is being done now, in words."""

    stage: str


@dataclass(frozen=True, slots=True)
class EngineReady:
    info: EngineInfo


@dataclass(frozen=True, slots=True)
class EngineFailed:
    """The last word of an engine process. by_user: a wrong option or model; otherwise it broke."""

    error: str
    by_user: bool = False

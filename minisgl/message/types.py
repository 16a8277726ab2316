"""What crosses between the tokenizer side and the scheduler. Frozen; every message names its request by `uid`.

A question has a uid too, from the same numbers, so that its answer finds the way back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

import msgspec

from minisgl.core import Explanation, SamplingParams, TokenLogprobs
from minisgl.core.picture import NodeUse, TreePath, TreePicture
from minisgl.message.activity import RequestNow, StepRecord
from minisgl.utils.arrays import Int32Array

FinishReason = Literal["stop", "length", "abort", "error"]
AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, slots=True, eq=False)
class UserMsg:
    """A new request. input_ids: [N] int32, N >= 1, owned by the receiver. seed: never None here.

    cache_salt: only requests of the same salt share cached prefixes; "" is the public one.
    priority: larger goes first where the policy is "priority", and is kept longer where eviction is.
    explain: answer with the explanation as soon as it is admitted, before the first token.
    """

    uid: int
    input_ids: Int32Array
    sampling_params: SamplingParams
    seed: int
    cache_salt: str = ""
    priority: int = 0
    explain: bool = False


@dataclass(frozen=True, slots=True)
class AbortMsg:
    """Stop this request and answer with finish_reason "abort"; unknown or finished uids are ignored."""

    uid: int


@dataclass(frozen=True, slots=True)
class FinishMsg:
    """The tokenizer side found a stop string: keep `num_tokens` generated tokens, forget what came later. No reply."""

    uid: int
    num_tokens: int


@dataclass(frozen=True, slots=True, eq=False)
class Question(Generic[AnswerT]):
    """What is answered once, between two steps, with an AnswerT."""

    uid: int


@dataclass(frozen=True, slots=True)
class StatsMsg(Question["EngineStats"]):
    """Sizes and totals. recount: check every page, node, row and lock first; what is wrong ends the engine."""

    recount: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ProbeMsg(Question[int]):
    """How many tokens of this prompt a request would find cached now. Changes nothing, recency included."""

    input_ids: Int32Array
    cache_salt: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class ExplainMsg(Question[Explanation]):
    """Why the tokens of this prompt would be computed, or not, if it were admitted now. Changes nothing."""

    input_ids: Int32Array
    cache_salt: str = ""


@dataclass(frozen=True, slots=True)
class ActivityMsg(Question["Activity"]):
    """What was done from step `since` on. The first one has steps recorded; 30 s without one end that."""

    since: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class PurgeMsg(Question[int]):
    """Nothing cached now that begins with `prefix` shall be matched again; running requests keep what they hold.

    prefix: [N] int32; of no tokens: everything. cache_salt: whose; None: everybody's. The answer is how
    many tokens were freed at once.
    """

    prefix: Int32Array
    cache_salt: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class SlowQuestion(Question[AnswerT]):
    """What takes longer than a step may be held up: it is worked on a little at every step."""


@dataclass(frozen=True, slots=True, eq=False)
class TreeMsg(SlowQuestion[TreePicture | None]):
    """The prefix cache's trees, or what is below a node; None if it is gone.

    max_nodes: at most so many nodes are told. head_len: so many of each one's first token ids.
    """

    node: int | None = None
    max_nodes: int = 1500
    head_len: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class NodeMsg(SlowQuestion[NodeUse | None]):
    """Who uses a node; None if it is gone. tail_len: so many of the last token ids of its path are told."""

    node: int
    tail_len: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class PathMsg(Question[TreePath]):
    """Where this prompt lies in the tree. Changes nothing."""

    input_ids: Int32Array
    cache_salt: str = ""


@dataclass(frozen=True, slots=True)
class ShutdownMsg:
    """End the loop. Requests still open are answered with finish_reason "abort"."""


RequestMsg = UserMsg | AbortMsg | FinishMsg | Question[Any] | ShutdownMsg


class TokenReply(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """News of one request.

    token_ids: generated since the last reply, the end token included. finish_reason: None while it runs.
    logprobs: one for each of token_ids, if asked for. cached_len: prompt tokens that were not computed; it, queue_s
    (seconds from arrival to admission; None if it never ran), prompt_logprobs (None first, then one for each later
    prompt token) and the explanation, where there are any, come with the first reply. error: what went wrong, with
    finish_reason "error".

    A Struct, as one is made, sent and read for every token: a NamedTuple takes three times as long. It cannot be part
    of a cycle, so the search for them need not know of it.
    """

    uid: int
    token_ids: tuple[int, ...] = ()
    finish_reason: FinishReason | None = None
    logprobs: tuple[TokenLogprobs, ...] = ()
    cached_len: int | None = None
    queue_s: float | None = None
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None
    error: str | None = None
    explanation: Explanation | None = None


class NextTokens(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One more token of each of these requests, and nothing else to say of them: most of what a step of decodes tells.

    uids, token_ids: as many of both.
    """

    uids: list[int]
    token_ids: list[int]

    def each(self) -> Iterator[TokenReply]:
        """The same, request by request."""
        return map(TokenReply, self.uids, zip(self.token_ids, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """What scheduler and cache hold now, and what they did since the start.

    num_pages, page_size, free_pages: of the KV pool. evictable_tokens, protected_tokens: cached, and read by nobody or
    by somebody. queried_tokens: prompt tokens of admitted requests that looked for a prefix, of which hit_tokens were
    found. evicted_tokens: forgotten for want of pages (flushed ones do not count). computed_tokens: prompt tokens that
    went through the model, and tokens that did so again after a retraction. generated_tokens: sampled, those past a
    stop string included. num_finished, num_aborted, num_failed: requests by how they ended. num_retracted: times that
    a running request gave up its pages, to go on later. num_batches: batches launched. host_s: seconds in which the
    loop worked for them, from messages to replies, less what it waited for results and, on a CPU, less what linear
    layers, attention and the store of keys and values took in C++. capacity_hits: tokens that would have been found in
    a pool so many times as large, for each of CAPACITY_FACTORS; none if nobody counts. capacity_queried: tokens looked
    up while somebody did. causes: prompt tokens of admitted requests by why they were computed, or not; see `Cause`.
    """

    num_running: int = 0
    num_waiting: int = 0
    num_pages: int = 0
    page_size: int = 1
    free_pages: int = 0
    evictable_tokens: int = 0
    protected_tokens: int = 0
    queried_tokens: int = 0
    hit_tokens: int = 0
    evicted_tokens: int = 0
    computed_tokens: int = 0
    generated_tokens: int = 0
    num_finished: int = 0
    num_aborted: int = 0
    num_failed: int = 0
    num_batches: int = 0
    num_retracted: int = 0
    host_s: float = 0.0
    uptime_s: float = 0.0
    capacity_hits: tuple[float, ...] = ()
    capacity_queried: int = 0
    causes: dict[str, int] = field(default_factory=dict)


class Activity(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What an engine does. steps: of the last 512, those that were asked for. next_step: to go on with.

    requests: those that run, then those that wait, 512 at most.
    """

    stats: EngineStats
    steps: list[StepRecord]
    next_step: int
    requests: list[RequestNow]


@dataclass(frozen=True, slots=True)
class StatsReply:
    """The answer to a StatsMsg."""

    uid: int
    answer: EngineStats


@dataclass(frozen=True, slots=True)
class CountReply:
    """The answer to a ProbeMsg or a PurgeMsg. answer: in tokens."""

    uid: int
    answer: int


@dataclass(frozen=True, slots=True)
class ExplainReply:
    """The answer to an ExplainMsg."""

    uid: int
    answer: Explanation


@dataclass(frozen=True, slots=True)
class ActivityReply:
    """The answer to an ActivityMsg."""

    uid: int
    answer: Activity


@dataclass(frozen=True, slots=True)
class TreeReply:
    """The answer to a TreeMsg."""

    uid: int
    answer: TreePicture | None


@dataclass(frozen=True, slots=True)
class NodeReply:
    """The answer to a NodeMsg."""

    uid: int
    answer: NodeUse | None


@dataclass(frozen=True, slots=True)
class PathReply:
    """The answer to a PathMsg."""

    uid: int
    answer: TreePath


TokenNews = TokenReply | NextTokens
Answer = StatsReply | CountReply | ExplainReply | ActivityReply | TreeReply | NodeReply | PathReply
Reply = TokenNews | Answer

"""One request as the scheduler sees it: its tokens, its progress, and where it is in its life."""

from __future__ import annotations

import time
from enum import Enum

import numpy as np

from minisgl.core import Explanation, SamplingParams, TokenLogprobs
from minisgl.core.req import Member
from minisgl.kvcache.types import PUBLIC, Namespace
from minisgl.message import FinishReason, TokenReply
from minisgl.scheduler.allocation import Allocation
from minisgl.utils.arrays import NO_IDS, Int32Array


class RequestState(Enum):
    """WAITING -> PREFILL -> DECODE -> FINISHED | ABORTED. Batches may still be in flight in the last two.

    A retraction takes a request back from PREFILL or DECODE to WAITING.
    """

    WAITING = "waiting"
    PREFILL = "prefill"
    DECODE = "decode"
    FINISHED = "finished"
    ABORTED = "aborted"


_RUNNING = (RequestState.PREFILL, RequestState.DECODE)
_OVER = (RequestState.FINISHED, RequestState.ABORTED)


class Request:
    """Mutable, owned by the scheduler. What changes of a running one at every step is in its row of `Rows`.

    member: as batches have it, None while it waits. announces: whether its admission is news of its own.
    """

    __slots__ = (
        "_ids", "admitted_at", "allocation", "announces", "arrival", "arrived_at", "end_token_ids", "explanation",
        "hit_len", "is_announced", "max_device_len", "member", "namespace", "num_admissions", "prefill_len", "priority",
        "prompt_len", "prompt_logprobs", "replied", "sampling_params", "seed", "state", "storable", "uid",
    )  # fmt: skip

    def __init__(
        self,
        uid: int,
        prompt: Int32Array,
        sampling_params: SamplingParams,
        seed: int,
        end_token_ids: frozenset[int],
        max_device_len: int,
        namespace: Namespace = PUBLIC,
        priority: int = 0,
        announces: bool = False,
    ) -> None:
        self.uid = uid
        self.sampling_params = sampling_params
        self.seed = seed
        self.end_token_ids = end_token_ids
        self.prompt_len = len(prompt)
        self.prefill_len = len(prompt)  # tokens known at the last admission
        self.max_device_len = max_device_len
        self.namespace = namespace
        self.priority = priority
        self._ids = prompt  # all that is known when it waits
        self.state = RequestState.WAITING
        self.allocation: Allocation | None = None
        self.member: Member | None = None
        self.num_admissions = 0
        self.hit_len = 0  # prompt tokens that were cached when it was first admitted
        self.storable = True  # false once its KV cannot be trusted
        self.announces = announces
        self.is_announced = False
        self.explanation: Explanation | None = None  # of its first admission, where the cache explains
        self.replied = False
        self.prompt_logprobs: list[TokenLogprobs | None] = [None]
        self.arrival = -1  # how many requests came before it; the queue's
        self.arrived_at = time.perf_counter()  # to be reported; nothing is decided by it
        self.admitted_at: float | None = None

    @property
    def is_running(self) -> bool:
        return self.state in _RUNNING

    @property
    def is_over(self) -> bool:
        return self.state in _OVER

    @property
    def num_ids(self) -> int:
        """Tokens that are known."""
        return len(self._ids) if self.allocation is None else self._at(self.allocation.rows.num_ids)

    @property
    def device_len(self) -> int:
        """Tokens whose KV is computed by the batches launched so far, or was found."""
        return 0 if self.allocation is None else self._at(self.allocation.rows.device_len)

    @property
    def committed_len(self) -> int:
        """The same of those that are committed."""
        return 0 if self.allocation is None else self._at(self.allocation.rows.committed_len)

    @property
    def is_in_flight(self) -> bool:
        """Whether a launched batch that computes some of it is not committed yet."""
        return self.device_len > self.committed_len

    @property
    def num_generated(self) -> int:
        return self.num_ids - self.prompt_len

    @property
    def max_kv_len(self) -> int:
        """Tokens whose KV is ever needed: the last generated one's is not."""
        return max(self.prompt_len, self.max_device_len - 1)

    @property
    def reuses_prefix(self) -> bool:
        """Log-probabilities of prompt tokens need their hidden states, so such a prompt is computed in full."""
        return self.sampling_params.prompt_logprobs is None or len(self.prompt_logprobs) == self.prompt_len

    @property
    def wanted_ids(self) -> Int32Array:
        """The tokens to look for in the cache (all but the last of them) while it waits, a view.

        The prompt and, after a retraction, what was generated; for one whose log-probabilities are wanted only as
        far as they are known.
        """
        return self._ids[: self.prefill_len if self.reuses_prefix else len(self.prompt_logprobs)]

    @property
    def queue_s(self) -> float | None:
        """Seconds from arrival to its first admission; None if it was never admitted."""
        return None if self.admitted_at is None else self.admitted_at - self.arrived_at

    def ids(self, length: int | None = None) -> Int32Array:
        """The first `length` tokens (default: all known), a view that later tokens do not change."""
        ids = self._ids if self.member is None else self.member.ids
        return ids[: self.num_ids if length is None else length]

    def begins_with(self, namespace: Namespace | None, prefix: Int32Array) -> bool:
        """Whether it is of `namespace` (None: any) and all of `prefix` is the beginning of what is known of it."""
        return namespace in (None, self.namespace) and np.array_equal(self.ids()[: len(prefix)], prefix)

    def start(self, allocation: Allocation) -> None:
        known, hit_len = self._ids, allocation.hit_len
        rows, at = allocation.rows, allocation.table_idx
        rows.uid[at], rows.max_device_len[at] = self.uid, self.max_device_len
        rows.num_ids[at], rows.ids[at, : len(known)] = len(known), known
        rows.device_len[at] = rows.committed_len[at] = hit_len
        rows.appends_below[at] = 0
        self.allocation = allocation
        self.member = Member(
            self.uid,
            at,
            self.max_device_len,
            self.prompt_len,
            self.prefill_len,
            self.sampling_params,
            self.seed,
            self.end_token_ids,
            rows.ids[at],
        )
        self._ids = NO_IDS
        self.state = RequestState.PREFILL
        self.num_admissions += 1
        if self.num_admissions == 1:
            self.hit_len = hit_len
            self.admitted_at = time.perf_counter()

    def retract(self) -> None:
        """Its pages are gone: it waits again, with what it has generated as a part of its prompt."""
        assert not self.is_in_flight, f"a batch in flight reads the pages of uid {self.uid}"
        self._ids = self.ids().copy()
        self.allocation = self.member = None
        self.state = RequestState.WAITING
        self.prefill_len = len(self._ids)

    def launched(self) -> None:
        """A batch computes a part of its prompt, maybe the last one."""
        if self.device_len >= self.prefill_len:
            self.state = RequestState.DECODE

    def close(self, state: RequestState) -> None:
        """It is over. What launched batches give of it goes unheeded."""
        self.state = state
        if self.allocation is not None:
            self.allocation.rows.appends_below[self.allocation.table_idx] = 0

    def take_prompt_logprobs(self, begin: int, logprobs: tuple[TokenLogprobs, ...]) -> None:
        """Those of the tokens from position `begin` on. What was computed before a retraction stays as it is."""
        self.prompt_logprobs.extend(logprobs[len(self.prompt_logprobs) - begin :])

    def append(self, token_id: int, logprobs: TokenLogprobs | None = None) -> TokenReply:
        """A generated token; the news of it, with why it is the last one, if it is."""
        assert self.allocation is not None
        rows, at, num_ids = self.allocation.rows, self.allocation.table_idx, self.num_ids + 1
        rows.ids[at, num_ids - 1], rows.num_ids[at] = token_id, num_ids
        reason: FinishReason | None = None
        if token_id in self.end_token_ids and self.num_generated > self.sampling_params.min_tokens:
            reason = "stop"
        elif num_ids == self.max_device_len:
            reason = "length"
        elif logprobs is None:
            rows.appends_below[at] = self.max_device_len - 1
        return self.reply((token_id,), reason, (logprobs,) if logprobs else ())

    def truncate(self, num_tokens: int) -> None:
        """Forget generated tokens past the first `num_tokens`."""
        kept = min(self.num_ids, self.prompt_len + num_tokens)
        if self.allocation is None:
            self._ids = self._ids[:kept]
        else:
            self.allocation.rows.num_ids[self.allocation.table_idx] = kept

    def announce(self) -> TokenReply:
        """That it was admitted, before there is more to tell of it."""
        self.is_announced = True
        return TokenReply(self.uid, cached_len=self.hit_len, queue_s=self.queue_s, explanation=self.explanation)

    def reply(
        self,
        token_ids: tuple[int, ...] = (),
        finish_reason: FinishReason | None = None,
        logprobs: tuple[TokenLogprobs, ...] = (),
        error: str | None = None,
    ) -> TokenReply:
        """News for the client; the first one carries what was cached, unless that was announced, and the prompt's
        log-probabilities.
        """
        if self.replied:
            return TokenReply(self.uid, token_ids, finish_reason, logprobs, error=error)
        self.replied = True
        wants_prompt = self.sampling_params.prompt_logprobs is not None and self.reuses_prefix
        return TokenReply(
            self.uid,
            token_ids,
            finish_reason,
            logprobs,
            cached_len=None if self.is_announced else self.hit_len,
            queue_s=None if self.is_announced else self.queue_s,
            prompt_logprobs=tuple(self.prompt_logprobs) if wants_prompt else None,
            error=error,
            explanation=None if self.is_announced else self.explanation,
        )

    def _at(self, column: Int32Array) -> int:
        assert self.allocation is not None
        return int(column[self.allocation.table_idx])

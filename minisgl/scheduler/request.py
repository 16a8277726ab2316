"""One request as the scheduler sees it: its tokens, its progress, and where it is in its life."""

from __future__ import annotations

import time
from enum import Enum

import numpy as np

from minisgl.core import Req, SamplingParams, TokenLogprobs
from minisgl.core.batch import Int32Array
from minisgl.kvcache.base import PUBLIC, Namespace
from minisgl.message import FinishReason, TokenReply
from minisgl.scheduler.allocation import Allocation


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
    """Mutable, owned by the scheduler.

        0 ...... committed_len ...... device_len ...... num_ids (DECODE: at most one ahead of device_len)
        |  KV computed  |  launched, in flight  |  known, not launched  |

    Under overlap device_len may be num_ids: the token at that position is still on the device, in row `row` of the
    batch launched last.
    """

    __slots__ = (
        "_ids", "admitted_at", "allocation", "arrival", "arrived_at", "committed_len", "device_len", "end_token_ids",
        "hit_len", "max_device_len", "namespace", "num_admissions", "num_ids", "num_inflight", "prefill_len",
        "priority", "prompt_len", "prompt_logprobs", "replied", "row", "sampling_params", "seed", "state", "storable",
        "uid",
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
    ) -> None:
        self.uid = uid
        self.sampling_params = sampling_params
        self.seed = seed
        self.end_token_ids = end_token_ids
        self.prompt_len = self.num_ids = len(prompt)
        self.prefill_len = len(prompt)  # tokens known at the last admission
        self.max_device_len = max_device_len
        self.namespace = namespace
        self.priority = priority
        self._ids = prompt
        self.state = RequestState.WAITING
        self.device_len = self.committed_len = 0
        self.num_inflight = 0
        self.row = -1
        self.allocation: Allocation | None = None
        self.num_admissions = 0
        self.hit_len = 0  # prompt tokens that were cached when it was first admitted
        self.storable = True  # false once its KV cannot be trusted
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
        return self._ids[: self.num_ids if length is None else length]

    def begins_with(self, namespace: Namespace | None, prefix: Int32Array) -> bool:
        """Whether it is of `namespace` (None: any) and all of `prefix` is the beginning of what is known of it."""
        return namespace in (None, self.namespace) and np.array_equal(self.ids()[: len(prefix)], prefix)

    def start(self, allocation: Allocation) -> None:
        self.allocation = allocation
        self.device_len = self.committed_len = allocation.hit_len
        self.state = RequestState.PREFILL
        self.num_admissions += 1
        if self.num_admissions == 1:
            self.hit_len = allocation.hit_len
            self.admitted_at = time.perf_counter()

    def retract(self) -> None:
        """Its pages are gone: it waits again, with what it has generated as a part of its prompt."""
        assert self.num_inflight == 0, f"{self.num_inflight} batches in flight read the pages of uid {self.uid}"
        self.allocation = None
        self.state = RequestState.WAITING
        self.prefill_len = self.num_ids
        self.device_len = self.committed_len = 0
        self.row = -1

    def launch(self, num_tokens: int, row: int) -> Req:
        """The next `num_tokens` tokens go into row `row` of a batch; returns what the engine sees of it."""
        assert self.allocation is not None
        cached_len, num_ids, prefill_len = self.device_len, self.num_ids, self.prefill_len
        self.device_len = device_len = cached_len + num_tokens
        prev_row, self.row = self.row if device_len > num_ids else -1, row
        if cached_len < prefill_len <= device_len:
            self.state = RequestState.DECODE
        self.num_inflight += 1
        return Req(  # by position: with names it takes half as long again
            self.uid,
            self.allocation.table_idx,
            cached_len,
            device_len,
            self.max_device_len,
            self.prompt_len,
            self._ids[:num_ids],
            self.sampling_params,
            self.seed,
            prev_row,
            self.end_token_ids,
            prefill_len,
        )

    def take_prompt_logprobs(self, begin: int, logprobs: tuple[TokenLogprobs, ...]) -> None:
        """Those of the tokens from position `begin` on. What was computed before a retraction stays as it is."""
        self.prompt_logprobs.extend(logprobs[len(self.prompt_logprobs) - begin :])

    def append(self, token_id: int, logprobs: TokenLogprobs | None = None) -> TokenReply:
        """A generated token; the news of it, with why it is the last one, if it is."""
        num_ids = self.num_ids
        if num_ids == len(self._ids):  # views handed out keep the old array
            room = min(self.max_device_len, 2 * num_ids + 16)
            self._ids = np.concatenate([self._ids, np.empty(room - num_ids, np.int32)])
        self._ids[num_ids] = token_id
        self.num_ids = num_ids + 1
        reason: FinishReason | None = None
        if token_id in self.end_token_ids and self.num_generated > self.sampling_params.min_tokens:
            reason = "stop"
        elif num_ids + 1 == self.max_device_len:
            reason = "length"
        if self.replied and logprobs is None:  # nearly always, so a call less
            return TokenReply(self.uid, (token_id,), reason)
        return self.reply((token_id,), reason, (logprobs,) if logprobs else ())

    def truncate(self, num_tokens: int) -> None:
        """Forget generated tokens past the first `num_tokens`."""
        self.num_ids = min(self.num_ids, self.prompt_len + num_tokens)

    def reply(
        self,
        token_ids: tuple[int, ...] = (),
        finish_reason: FinishReason | None = None,
        logprobs: tuple[TokenLogprobs, ...] = (),
        error: str | None = None,
    ) -> TokenReply:
        """News for the client; the first one carries what was cached and the prompt's log-probabilities."""
        if self.replied:
            return TokenReply(self.uid, token_ids, finish_reason, logprobs, error=error)
        self.replied = True
        wants_prompt = self.sampling_params.prompt_logprobs is not None and self.reuses_prefix
        return TokenReply(
            self.uid,
            token_ids,
            finish_reason,
            logprobs,
            cached_len=self.hit_len,
            queue_s=self.queue_s,
            prompt_logprobs=tuple(self.prompt_logprobs) if wants_prompt else None,
            error=error,
        )

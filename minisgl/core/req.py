"""One request in one batch, and what is the same of it in all its batches."""

from __future__ import annotations

import msgspec

from minisgl.core.sampling_params import SamplingParams
from minisgl.utils.arrays import Int32Array


class Req(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One request's part of one batch: the forward pass computes tokens [cached_len, device_len).

        0 ........... cached_len ........... device_len ........... max_device_len
        |  KV in the pool  |  extend: this batch  |  not generated yet  |

    input_ids: [N] int32 on the host, every token known when the batch was planned, from position 0. N is device_len
    (more for a chunk that stops inside the prompt), or device_len - 1 when the last token is still on the device:
    then `prev_row` names the row of the previous batch's output that holds it (overlap), else `prev_row` is -1.
    prefill_len: tokens known when the request was admitted: its prompt, or, if it was retracted and admitted again,
    the prompt and what had been generated. Those before it are computed without sampling.
    end_token_ids: tokens that end this text; masked while fewer than min_tokens were generated.
    seed: the request's own stream of random numbers; drawn by (seed, num_generated), so batch mates do not matter.

    A Struct, because hundreds may be made at a step: a frozen dataclass takes six times as long. It cannot be part of
    a cycle, so the search for them need not know of it.
    """

    uid: int
    table_idx: int
    cached_len: int
    device_len: int
    max_device_len: int
    prompt_len: int
    input_ids: Int32Array
    sampling_params: SamplingParams
    seed: int = 0
    prev_row: int = -1
    end_token_ids: frozenset[int] = frozenset()
    prefill_len: int = 0  # 0: prompt_len

    def check_integrity(self) -> None:
        """AssertionError if no request has such a part. Not checked as it is made: that takes as long as making it."""
        assert 0 <= self.cached_len < self.device_len <= self.max_device_len, (
            f"uid={self.uid}: cached_len={self.cached_len} device_len={self.device_len} max={self.max_device_len}"
        )
        num_ids = len(self.input_ids)
        assert num_ids >= self.device_len - (self.prev_row >= 0), f"uid={self.uid}: {num_ids} of {self.device_len} ids"

    @property
    def extend_len(self) -> int:
        """Tokens that this batch computes for the request."""
        return self.device_len - self.cached_len

    @property
    def is_prefill(self) -> bool:
        """Whether a token that was known at admission is among those computed."""
        return self.cached_len < (self.prefill_len or self.prompt_len)

    @property
    def num_generated(self) -> int:
        """Tokens generated before this batch; the one that this batch samples has this index."""
        return self.device_len - self.prompt_len

    @property
    def samples(self) -> bool:
        """Whether a token is sampled: not for a chunk that stops before prefill_len, nor when none is wanted."""
        return (self.prefill_len or self.prompt_len) <= self.device_len < self.max_device_len


class Admitted(msgspec.Struct, frozen=True, eq=False, gc=False, array_like=True):
    """What a request has in common in all batches from one admission on; see `Req`."""

    uid: int
    table_idx: int
    max_device_len: int
    prompt_len: int
    prefill_len: int
    sampling_params: SamplingParams
    seed: int
    end_token_ids: frozenset[int]

    @classmethod
    def of(cls, req: Req) -> Admitted:
        return cls(*(getattr(req, name) for name in cls.__struct_fields__))


class Member(Admitted, frozen=True, eq=False, gc=False):
    """The same where its batches are made. ids: [max_device_len] or more, of its tokens: written as they get known."""

    ids: Int32Array

    def req(self, cached_len: int, device_len: int, prev_row: int) -> Req:
        """Its part of one batch."""
        num_ids = max(self.prefill_len or self.prompt_len, device_len) if prev_row < 0 else device_len - 1
        return Req(  # by position: with names it takes half as long again
            self.uid,
            self.table_idx,
            cached_len,
            device_len,
            self.max_device_len,
            self.prompt_len,
            self.ids[:num_ids],
            self.sampling_params,
            self.seed,
            prev_row,
            self.end_token_ids,
            self.prefill_len,
        )

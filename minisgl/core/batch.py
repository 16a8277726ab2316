"""What crosses between scheduler and engine: a `Batch` one way, a `BatchResult` the other. All of it is frozen.

Shape letters: B requests in the batch, T tokens in the batch, U page-table cells to write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, overload

import msgspec
import numpy as np
import numpy.typing as npt

from minisgl.core.sampling_params import SamplingParams

Int32Array = npt.NDArray[np.int32]
NO_IDS: Int32Array = np.empty(0, np.int32)


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


class Member(msgspec.Struct, frozen=True, eq=False, gc=False):
    """What a request has in common in all batches from one admission on; see `Req`.

    ids: of its tokens, [max_device_len] or more: they are written there as they become known.
    """

    uid: int
    table_idx: int
    max_device_len: int
    prompt_len: int
    prefill_len: int
    sampling_params: SamplingParams
    seed: int
    end_token_ids: frozenset[int]
    ids: Int32Array

    def req(self, cached_len: int, device_len: int, prev_row: int) -> Req:
        """Its part of one batch."""
        num_ids = max(self.prefill_len, device_len) if prev_row < 0 else device_len - 1
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


class Columns(NamedTuple):
    """What changes of each row of a batch, each [B] int32; see `Req`."""

    table_idxs: Int32Array
    cached_lens: Int32Array
    device_lens: Int32Array
    prev_rows: Int32Array

    @classmethod
    def of(cls, reqs: Sequence[Req]) -> Columns:
        names = ("table_idx", "cached_len", "device_len", "prev_row")
        return cls(*(np.array([getattr(req, name) for req in reqs], np.int32) for name in names))


class Reqs(Sequence[Req]):
    """The parts of a batch, made only if they are looked at: a step of hundreds of decodes is a few arrays.

    members: [B], the very same tuple as in the batch before if its rows are.
    """

    __slots__ = ("_made", "columns", "members")

    def __init__(self, members: tuple[Member, ...], columns: Columns) -> None:
        self.members = members
        self.columns = columns
        self._made: tuple[Req, ...] = ()

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Req]:
        return iter(self._all())

    @overload
    def __getitem__(self, row: int) -> Req: ...

    @overload
    def __getitem__(self, row: slice) -> tuple[Req, ...]: ...

    def __getitem__(self, row: int | slice) -> Req | tuple[Req, ...]:
        if self._made or isinstance(row, slice):
            return self._all()[row]
        _, cached_lens, device_lens, prev_rows = self.columns
        return self.members[row].req(int(cached_lens[row]), int(device_lens[row]), int(prev_rows[row]))

    def _all(self) -> tuple[Req, ...]:
        if not self._made:
            changing = (column.tolist() for column in self.columns[1:])
            self._made = tuple([member.req(*row) for member, *row in zip(self.members, *changing, strict=True)])
        return self._made


def members_of(reqs: Sequence[Req]) -> Sequence[Req | Member]:
    """What does not change of each of them. The very same object as for the last batch says that no row changed."""
    return reqs.members if isinstance(reqs, Reqs) else reqs


def columns_of(reqs: Sequence[Req]) -> Columns:
    """What changes of each of them, made only where it is not there already."""
    return reqs.columns if isinstance(reqs, Reqs) else Columns.of(reqs)


@dataclass(frozen=True, slots=True, eq=False)
class PageTableUpdate:
    """Cells of the page table that changed since the last batch: table[rows, cols] = pages. Each [U] int32."""

    rows: Int32Array
    cols: Int32Array
    pages: Int32Array


@dataclass(frozen=True, slots=True, eq=False)
class PrefixGroup:
    """Rows of a batch whose tokens [begin, end) lie in the same pages, so that attention may read them once for all.

    rows: at least two, ascending. begin, end: multiples of the page size, within what was computed before the batch.
    """

    rows: Int32Array
    begin: int
    end: int


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Everything that the engine needs for one forward pass; complete when it is made.

    reqs: decodes first, then prefills. step: counts launched batches from 0. groups: a forest; parents come before
    children, and a child begins where its parent ends, with some of its rows.
    cached_lens, device_lens, table_idxs, prev_rows: those of the reqs, each [B] int32. extend_lens: [B], tokens that
    this batch computes for each. num_decodes: how many leading rows compute one token.
    """

    reqs: Sequence[Req]
    page_table_update: PageTableUpdate
    step: int
    groups: tuple[PrefixGroup, ...] = ()
    cached_lens: Int32Array = field(init=False)
    device_lens: Int32Array = field(init=False)
    table_idxs: Int32Array = field(init=False)
    prev_rows: Int32Array = field(init=False)
    extend_lens: Int32Array = field(init=False)
    num_decodes: int = field(init=False)

    def __post_init__(self) -> None:
        reqs = self.reqs
        columns = columns_of(reqs)
        extend_lens = columns.device_lens - columns.cached_lens
        is_longer = extend_lens > 1
        num_decodes = int(is_longer.argmax()) if is_longer.any() else len(reqs)
        values = (*columns, extend_lens, num_decodes)
        for name, value in zip((*Columns._fields, "extend_lens", "num_decodes"), values, strict=True):
            object.__setattr__(self, name, value)

    def check_integrity(self) -> None:
        """AssertionError naming a request whose part is wrong."""
        for req in self.reqs:
            req.check_integrity()

    @property
    def is_prefill(self) -> bool:
        """Whether any token that was known at its request's admission is computed in this batch."""
        return any(req.is_prefill for req in self.reqs)

    @property
    def num_tokens(self) -> int:
        """T, the tokens that the forward pass computes."""
        return int(self.extend_lens.sum())


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """A token, its log-probability under the model's own (unfiltered) distribution, and the best alternatives.

    top: (token id, logprob) pairs, best first, as many as were asked for.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class BatchResult:
    """What one batch produced, on the host, row by row like `Batch.reqs`.

    next_tokens: [B] int32, -1 where the row failed; of a row that samples nothing it says nothing.
    logprobs: of the sampled token, None where not asked for; empty when no row asked.
    prompt_logprobs: for prompt tokens [cached_len + 1, min(device_len + 1, prompt_len)) of the row; likewise.
    errors: why a row failed (its token is then -1), by row.
    """

    next_tokens: Int32Array
    logprobs: tuple[TokenLogprobs | None, ...] = ()
    prompt_logprobs: tuple[tuple[TokenLogprobs, ...], ...] = ()
    errors: dict[int, str] = field(default_factory=dict)


class BatchOutput(Protocol):
    """A launched batch. Its tokens may still be on the device; `result` waits for them."""

    def result(self) -> BatchResult: ...


@dataclass(frozen=True, slots=True, eq=False)
class ForwardInput:
    """One launch. Launches are made in order: rows with a `prev_row` begin with a token of the one before."""

    batch: Batch


Forward = Callable[[ForwardInput], BatchOutput]

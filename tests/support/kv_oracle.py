"""An engine without a model that finds KV-cache mistakes.

A slot holds (token id, position) instead of K and V. A batch writes its tokens' slots, then reads every slot that
its page-table row names, as attention would, and fails when one is not the request's own token at that position:
freed and taken over, never written, shifted by a page. The next token is a hash of all that was read, so a token
lost or doubled changes everything that follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from minisgl.core import BatchOutput, BatchResult, ForwardInput, Req

VOCAB = 251
FIRST_TOKEN = 3


def next_token(ids: Sequence[int]) -> int:
    """The token that follows `ids`: FNV-1a over ids and positions."""
    return _token(_fold(ids))


def _fold(ids: Sequence[int], state: int = 2166136261, first_position: int = 0) -> int:
    for position, token in enumerate(ids, first_position):
        state = ((state ^ (token * 31 + position)) * 16777619) & 0xFFFFFFFF
    return state


def _token(state: int) -> int:
    return FIRST_TOKEN + state % (VOCAB - FIRST_TOKEN)


def reference(prompt: Sequence[int], max_tokens: int, end_token_ids: frozenset[int] = frozenset()) -> list[int]:
    """What must be generated, with no cache, no batch and no pages."""
    state, generated = _fold(prompt), list[int]()
    while len(generated) < max_tokens:
        generated.append(token := _token(state))
        if token in end_token_ids:
            break
        state = _fold([token], state, len(prompt) + len(generated) - 1)
    return generated


@dataclass
class OracleOutput:
    next_tokens: list[int]
    errors: dict[int, str] = field(default_factory=dict)

    def result(self) -> BatchResult:
        return BatchResult(np.array(self.next_tokens, np.int32), errors=self.errors)


class OracleEngine:
    """Runs batches at once, in the order of their launch, as a device stream would.

    num_computed: prompt and generated tokens that went through a forward pass. fail_tokens: a row that would sample
    one of these fails instead. fail_steps: these batches fail as a whole and write nothing; failed_uids were in them.
    """

    def __init__(self, num_pages: int, page_size: int, num_rows: int, row_len: int) -> None:
        self.page_size = page_size
        self.slots: list[tuple[int, int] | None] = [None] * (num_pages * page_size)
        self.page_table = np.full((num_rows, row_len), -1, np.int64)
        self.num_computed = 0
        self.batches: list[ForwardInput] = []
        self.fail_tokens: frozenset[int] = frozenset()
        self.fail_steps: set[int] = set()
        self.failed_uids: set[int] = set()
        self._last_tokens: list[int] = []

    def forward(self, forward_input: ForwardInput) -> BatchOutput:
        output = self._forward(forward_input)
        self._last_tokens = output.next_tokens
        return output

    def _forward(self, forward_input: ForwardInput) -> OracleOutput:
        batch = forward_input.batch
        self.batches.append(forward_input)
        update = batch.page_table_update
        self.page_table[update.rows, update.cols] = update.pages
        if batch.step in self.fail_steps:
            self.failed_uids.update(req.uid for req in batch.reqs)
            rows = range(len(batch.reqs))
            return OracleOutput([-1 for _ in rows], dict.fromkeys(rows, "out of memory"))
        ids = [self._ids(req) for req in batch.reqs]
        for req, tokens in zip(batch.reqs, ids, strict=True):
            self._write(req, tokens)
        sampled = [self._read(req, tokens) if req.samples else -1 for req, tokens in zip(batch.reqs, ids, strict=True)]
        errors = {row: "failed on purpose" for row, token in enumerate(sampled) if token in self.fail_tokens}
        return OracleOutput([-1 if row in errors else token for row, token in enumerate(sampled)], errors)

    def _ids(self, req: Req) -> list[int]:
        ids = req.input_ids[: req.device_len].tolist()
        if req.prev_row >= 0:
            ids.append(max(0, self._last_tokens[req.prev_row]))  # -1: that row failed, and nobody reads this one
        assert len(ids) == req.device_len
        return ids

    def _row(self, req: Req) -> list[int]:
        positions = np.arange(req.device_len)
        pages = self.page_table[req.table_idx, positions // self.page_size]
        assert pages.min() >= 0, f"uid {req.uid} reads a page-table cell that was never written"
        slots = pages * self.page_size + positions % self.page_size
        assert len(np.unique(slots)) == len(slots), f"uid {req.uid} has one slot twice in its row"
        return slots.tolist()

    def _write(self, req: Req, ids: list[int]) -> None:
        slots = self._row(req)
        for position in range(req.cached_len, req.device_len):
            self.slots[slots[position]] = (ids[position], position)
        self.num_computed += req.extend_len

    def _read(self, req: Req, ids: list[int]) -> int:
        for position, slot in enumerate(self._row(req)):
            held, wanted = self.slots[slot], (ids[position], position)
            assert held == wanted or req.uid in self.failed_uids, (
                f"uid {req.uid}: slot {slot} holds {held}, wanted {wanted}"
            )
        return next_token(ids)

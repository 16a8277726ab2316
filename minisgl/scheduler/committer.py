"""What becomes of a batch's results: tokens are appended, computed prompts stored, and ends found."""

from __future__ import annotations

import numpy as np

from minisgl.core import Batch, BatchResult, Req
from minisgl.message import NextTokens, Reply
from minisgl.scheduler.cache_manager import CacheManager
from minisgl.scheduler.counters import Counters
from minisgl.scheduler.endings import Endings
from minisgl.scheduler.request import Request, RequestState
from minisgl.scheduler.rows import RowIndex


class Committer:
    """Takes in batches in the order in which they were planned. admitted, replies: as those of `Endings`."""

    def __init__(
        self,
        manager: CacheManager,
        admitted: dict[int, Request],
        endings: Endings,
        counters: Counters,
        replies: list[Reply],
    ) -> None:
        self._manager = manager
        self._rows = manager.rows
        self._admitted = admitted
        self._endings = endings
        self._counters = counters
        self._replies = replies

    def commit(self, batch: Batch, result: BatchResult, last_step: int) -> None:
        """last_step: of the batch launched last, this one or the next."""
        self._manager.committed(batch.step)
        table_idxs = batch.table_idxs.astype(np.intp)
        self._rows.committed_len[table_idxs] = batch.device_lens
        for row in self._append_all(table_idxs, result):
            self._commit_row(row, batch.reqs[row], result, last_step)

    def _append_all(self, table_idxs: RowIndex, result: BatchResult) -> list[int]:
        """Take in the tokens of rows of which nothing else is to be said, most of hundreds; which rows are left."""
        rows, tokens, ends = self._rows, result.next_tokens, self._endings.end_token_ids.keys()
        token_ids = tokens.tolist()
        is_easy = rows.num_ids[table_idxs] < rows.appends_below[table_idxs]
        if result.errors:
            is_easy[list(result.errors)] = False
        if not ends.isdisjoint(token_ids):
            is_easy &= [token_id not in ends for token_id in token_ids]
        left: list[int] = []
        if not is_easy.all():
            left = (~is_easy).nonzero()[0].tolist()
            table_idxs, tokens = table_idxs[is_easy], tokens[is_easy]
            token_ids = tokens.tolist()
        rows.append(table_idxs, tokens)
        if token_ids:
            self._replies.append(NextTokens(rows.uid[table_idxs].tolist(), token_ids))
        self._counters.generated_tokens += len(token_ids)
        return left

    def _commit_row(self, row: int, req: Req, result: BatchResult, last_step: int) -> None:
        request, error = self._admitted[req.uid], result.errors.get(row)
        if error is not None:
            request.storable = False
        if request.is_over:
            if not request.is_in_flight:
                self._endings.release(request)
        elif error is not None:
            self._endings.close(request, RequestState.FINISHED, request.reply((), "error", error=error))
        else:
            if req.is_prefill:
                self._store_prompt(request, last_step)
                self._take_prompt(request, req, row, result)
            if req.samples:
                self._append(request, row, result)

    def _store_prompt(self, request: Request, last_step: int) -> None:
        assert request.allocation is not None
        self._manager.store(
            request.allocation, request.ids(request.committed_len), last_step if request.is_in_flight else -1
        )

    def _take_prompt(self, request: Request, req: Req, row: int, result: BatchResult) -> None:
        """Its prompt, or a part of it, is computed."""
        self._counters.computed_tokens += min(req.device_len, req.prefill_len) - req.cached_len
        if result.prompt_logprobs:
            request.take_prompt_logprobs(req.cached_len + 1, result.prompt_logprobs[row])
        if req.device_len == req.max_device_len:  # max_tokens=0: only the prompt was wanted
            self._endings.close(request, RequestState.FINISHED, request.reply((), "length"))

    def _append(self, request: Request, row: int, result: BatchResult) -> None:
        reply = request.append(int(result.next_tokens[row]), result.logprobs[row] if result.logprobs else None)
        self._counters.generated_tokens += 1
        if reply.finish_reason is None:
            self._replies.append(reply)
        else:
            self._endings.close(request, RequestState.FINISHED, reply)

"""GET /inspect/requests."""

from __future__ import annotations

from itertools import islice

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from minisgl.server.endpoints.common import json_response, read_query, state_of
from minisgl.server.explaining import Reasons
from minisgl.server.records import RequestRecord
from minisgl.server.schema.api import LIMIT
from minisgl.server.schema.explanation import AroundBranch, PastRequest, PastRequests, RequestExplanation
from minisgl.tokenizer import Tokenizer


async def past_requests(request: Request) -> Response:
    """Those that have generated and are over, the newest first."""
    limit, state = read_query(request, LIMIT), state_of(request)
    tokenizer = state.ready_engine().tokenizer
    return json_response(
        PastRequests([_shown(record, tokenizer) for record in islice(reversed(state.book.over), limit)])
    )


def _shown(record: RequestRecord, tokenizer: Tokenizer) -> PastRequest:
    assert record.endpoint is not None, "a request that generates nothing"
    return PastRequest(
        request_id=record.request_id,
        uids=record.uids,
        endpoint=record.endpoint,
        started_at=record.started_at,
        status=record.status,
        prompt_tokens=record.prompt_tokens,
        cached_tokens=record.cached_tokens,
        generated_tokens=record.generated_tokens,
        queue_s=record.queue_s,
        first_token_s=record.first_token_s,
        total_s=record.total_s,
        finish_reason=record.finish_reason,
        explanation=None if record.reasons is None else _explanation(record.reasons, tokenizer),
    )


def _explanation(reasons: Reasons, tokenizer: Tokenizer) -> RequestExplanation:
    """With text if the record has kept it, which it does with --ui-show-text."""
    window = reasons.window
    return RequestExplanation(
        causes=reasons.causes,
        left_at=reasons.left_at,
        evicted_s=reasons.evicted_s,
        evicted_tokens=reasons.evicted_tokens,
        around=msgspec.UNSET if window is None else AroundBranch(*window.around(tokenizer)),
    )

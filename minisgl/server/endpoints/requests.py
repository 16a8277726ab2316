"""GET /inspect/requests."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from minisgl.llm.text_threads import in_thread
from minisgl.server.endpoints.common import json_response, read_query, ready_state
from minisgl.server.explaining import Reasons
from minisgl.server.records import RequestRecord
from minisgl.server.schema.api import LIMIT
from minisgl.server.schema.explanation import AroundBranch, PastRequest, PastRequests, RequestExplanation
from minisgl.tokenizer import Tokenizer


async def past_requests(request: Request) -> Response:
    """Those that have generated and are over, the newest first."""
    limit, state = read_query(request, LIMIT), ready_state(request)
    tokenizer = state.ready_engine().tokenizer
    records = list(islice(reversed(state.book.over), limit))
    return json_response(await in_thread(len(records), _all_shown, records, tokenizer))


def _all_shown(records: Sequence[RequestRecord], tokenizer: Tokenizer) -> PastRequests:
    """Beside the event loop: the texts of hundreds take some ten milliseconds."""
    return PastRequests([_shown(record, tokenizer) for record in records])


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
    found = None if reasons.window is None else reasons.window.around(tokenizer)
    return RequestExplanation(
        causes=reasons.causes,
        left_at=reasons.left_at,
        evicted_s=reasons.evicted_s,
        evicted_tokens=reasons.evicted_tokens,
        around=msgspec.UNSET if found is None else AroundBranch(*found, found.same_text),
    )

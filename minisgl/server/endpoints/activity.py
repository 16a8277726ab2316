"""GET /inspect/activity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from minisgl.llm.text_threads import in_thread
from minisgl.message import Activity, EngineStats, StepRecord, hit_rates
from minisgl.server.endpoints.common import (
    ANSWER_TIMEOUT_S,
    engine_answers,
    read_query,
    ready_state,
    request_ids,
)
from minisgl.server.schema.activity import ActivityNow, CapacityPoint, Latency, OpenRequest, Spread, Step
from minisgl.server.schema.api import SINCE
from minisgl.server.state import ServerState
from minisgl.server.stream.events import encode, ready


async def show_activity(request: Request) -> Response:
    """What the engine did since a step, and what it is at."""
    state, since = ready_state(request), read_query(request, SINCE) or 0
    async with engine_answers(ANSWER_TIMEOUT_S):
        answer = await state.activity.ask(since, partial(_answers, state))
    return Response(answer, media_type="application/json")


async def _answers(state: ServerState, sinces: set[int]) -> dict[int, bytes]:
    """For each of these steps what was done from there on, as JSON. Of many steps it is made beside the event loop."""
    activity = await state.ready_engine().activity(min(sinces))
    ids, size = request_ids(state.book), sum(len(record.decodes) for record in activity.steps)
    return await in_thread(size, _encoded, _shown(activity, ids, _latency(state)), activity.steps, sinces)


def _encoded(shown: ActivityNow, records: Sequence[StepRecord], sinces: set[int]) -> dict[int, bytes]:
    steps = [(record.step, ready(Step.of(record))) for record in records]
    answers = {}
    for since in sinces:
        shown.steps = [step for number, step in steps if number >= since]
        answers[since] = encode(shown)
    return answers


def _shown(activity: Activity, ids: Mapping[int, str], latency: Latency) -> ActivityNow:
    """All but the steps. ids: of requests, by uid."""
    return ActivityNow(
        now_s=activity.stats.uptime_s,
        next=activity.next_step,
        stats=activity.stats,
        capacity=_capacity(activity.stats),
        causes=activity.stats.causes,
        steps=[],
        requests=[OpenRequest.of(each, ids.get(each.uid)) for each in activity.requests],
        latency=latency,
    )


def _capacity(stats: EngineStats) -> list[CapacityPoint]:
    """Nothing before the first prompt was looked up."""
    return [CapacityPoint(factor, rate) for factor, rate in hit_rates(stats) if rate is not None]


def _latency(state: ServerState) -> Latency:
    spreads = state.metrics.recent.spreads()
    return Latency(**{name: None if spread is None else Spread(**spread) for name, spread in spreads.items()})

"""GET /inspect/activity."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from minisgl.core import CAPACITY_FACTORS
from minisgl.message import Activity, EngineStats, RequestNow, StepRecord
from minisgl.message.activity import uids_of
from minisgl.server.endpoints.common import (
    ANSWER_TIMEOUT_S,
    engine_answers,
    json_response,
    read_query,
    request_ids,
    state_of,
)
from minisgl.server.schema.activity import ActivityNow, CapacityPoint, Latency, OpenRequest, Spread, Step
from minisgl.server.schema.api import SINCE
from minisgl.server.state import ServerState


async def show_activity(request: Request) -> Response:
    """What the engine did since a step, and what it is at."""
    state, since = state_of(request), read_query(request, SINCE) or 0
    async with engine_answers(ANSWER_TIMEOUT_S):
        activity = await state.ready_engine().activity(since)
    return json_response(_shown(activity, state))


def _shown(activity: Activity, state: ServerState) -> ActivityNow:
    ids = request_ids(state.book)
    return ActivityNow(
        now_s=activity.stats.uptime_s,
        next=activity.next_step,
        stats=activity.stats,
        capacity=_capacity(activity.stats),
        causes=activity.stats.causes,
        steps=[_step(record) for record in activity.steps],
        requests=[_request(each, ids.get(each.uid)) for each in activity.requests],
        latency=_latency(state),
    )


def _step(record: StepRecord) -> Step:
    sizes = record.sizes
    return Step(
        step=record.step,
        begin_s=record.begin_s,
        plan_s=record.plan_s,
        launch_s=record.launch_s,
        wait_s=record.wait_s,
        commit_s=record.commit_s,
        settled_s=record.settled_s,
        device_s=record.device_s,
        prefills=list(record.prefills),
        decodes=uids_of(record.decodes),
        arrived=list(record.arrived),
        admitted=list(record.admitted),
        retracted=list(record.retracted),
        finished=list(record.finished),
        aborted=list(record.aborted),
        free_tokens=sizes.free_tokens,
        evictable_tokens=sizes.evictable_tokens,
        protected_tokens=sizes.protected_tokens,
        evicted_tokens=sizes.evicted_tokens,
        num_running=sizes.num_running,
        num_waiting=sizes.num_waiting,
    )


def _request(request: RequestNow, request_id: str | None) -> OpenRequest:
    return OpenRequest(
        uid=request.uid,
        request_id=request_id,
        state=request.state,
        prompt_tokens=request.prompt_tokens,
        cached_tokens=request.cached_tokens,
        done_tokens=request.done_tokens,
        generated_tokens=request.generated_tokens,
        arrived_s=request.arrived_s,
        admitted_s=request.admitted_s,
        waits_for=request.waits_for,
    )


def _capacity(stats: EngineStats) -> list[CapacityPoint]:
    """Nothing before the first prompt was looked up."""
    if not stats.capacity_queried:
        return []
    points = zip(CAPACITY_FACTORS, stats.capacity_hits, strict=True)
    return [CapacityPoint(factor, hits / stats.capacity_queried) for factor, hits in points]


def _latency(state: ServerState) -> Latency:
    spreads = state.metrics.recent.spreads()
    return Latency(**{name: None if spread is None else Spread(**spread) for name, spread in spreads.items()})

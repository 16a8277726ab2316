"""GET /inspect/activity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from minisgl.core import CAPACITY_FACTORS
from minisgl.llm.text_threads import in_thread
from minisgl.message import Activity, EngineStats, RequestNow, StepRecord
from minisgl.message.activity import uids_of
from minisgl.server.endpoints.common import (
    ANSWER_TIMEOUT_S,
    engine_answers,
    read_query,
    request_ids,
    state_of,
)
from minisgl.server.schema.activity import ActivityNow, CapacityPoint, Latency, OpenRequest, Spread, Step
from minisgl.server.schema.api import SINCE
from minisgl.server.state import ServerState
from minisgl.server.stream.events import encode, ready


async def show_activity(request: Request) -> Response:
    """What the engine did since a step, and what it is at."""
    state, since = state_of(request), read_query(request, SINCE) or 0
    state.ready_engine()
    async with engine_answers(ANSWER_TIMEOUT_S):
        answer = await state.activity.ask(since, partial(_answers, state))
    return Response(answer, media_type="application/json")


async def _answers(state: ServerState, sinces: set[int]) -> dict[int, bytes]:
    """For each of these steps what was done from there on, as JSON. Of many steps it is made beside the event loop."""
    activity = await state.ready_engine().activity(min(sinces))
    ids, size = request_ids(state.book), sum(len(record.decodes) for record in activity.steps)
    return await in_thread(size, _encoded, _shown(activity, ids, _latency(state)), activity.steps, sinces)


def _encoded(shown: ActivityNow, records: Sequence[StepRecord], sinces: set[int]) -> dict[int, bytes]:
    steps = [(record.step, ready(_step(record))) for record in records]
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
        requests=[_request(each, ids.get(each.uid)) for each in activity.requests],
        latency=latency,
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

"""What the requests of a scheduler are at, for people to look at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import cast

from msgspec.structs import replace

from minisgl.core.picture import NodeUse
from minisgl.kvcache.types import BaseCacheHandle, Watch
from minisgl.message import RequestNow
from minisgl.message.activity import State
from minisgl.scheduler.request import Request, RequestState
from minisgl.scheduler.waiting import Waiting

MAX_SHOWN = 512  # requests: so many take a millisecond


def requests_now(admitted: Iterable[Request], waiting: Iterable[Waiting], started_at: float) -> list[RequestNow]:
    """Those that run in order of admission, then those that wait as they came. started_at: when the clock was 0."""
    running = (request for request in admitted if request.is_running)
    shown = [_shown(request, None, started_at) for request in islice(running, MAX_SHOWN)]
    for each in islice(waiting, MAX_SHOWN - len(shown)):
        shown.append(_shown(each.request, each.leader, started_at))
    return shown


def held_prefixes(admitted: Iterable[Request]) -> dict[int, BaseCacheHandle]:
    """What those that run have locked in the cache, by uid."""
    running = (request for request in admitted if request.is_running)
    return {request.uid: request.allocation.handle for request in running if request.allocation is not None}


def watches_of(waiting: Iterable[Waiting]) -> dict[int, Watch]:
    """Where in the cache they would begin, by uid."""
    return {each.request.uid: each.watch for each in waiting if each.watch is not None}


def with_states(use: NodeUse, admitted: Mapping[int, Request]) -> NodeUse:
    """The same with what its users are at, of those that still run."""
    running = [request for uid in use.users if (request := admitted.get(uid)) and request.is_running]
    is_prefill = (request.state is RequestState.PREFILL for request in running)
    states = ["prefill" if each else "decode" for each in is_prefill]
    return replace(use, users=[request.uid for request in running], states=states)


def _shown(request: Request, leader: Request | None, started_at: float) -> RequestNow:
    return RequestNow(
        uid=request.uid,
        state=cast("State", request.state.value),
        prompt_tokens=request.prompt_len,
        cached_tokens=request.hit_len,
        done_tokens=request.committed_len,
        generated_tokens=request.num_generated,
        arrived_s=request.arrived_at - started_at,
        admitted_s=None if request.admitted_at is None else request.admitted_at - started_at,
        waits_for=None if leader is None else leader.uid,
    )

"""GET /inspect/activity."""

from __future__ import annotations

import msgspec
from msgspec.structs import asdict

from minisgl.message import EngineStats, RequestNow, Sizes, StepRecord
from minisgl.message.activity import State, pack_uids, uids_of


class Step(msgspec.Struct, kw_only=True):
    """One turn of the engine's loop. Durations are in seconds: of choosing the batch, launching it, waiting for
    results, and taking these in.

    begin_s, device_s (begin and end): on the clock of now_s. settled_s: planning before results were waited for, where
    pages had run out; null: they were waited for after the launch. prefills: uid, begin, end of the prompt's tokens
    that were computed. arrived: uid, when, prompt tokens. finished: `aborted` included.
    """

    step: int
    begin_s: float
    plan_s: float
    launch_s: float
    wait_s: float
    commit_s: float
    settled_s: float | None
    device_s: tuple[float, float] | None
    prefills: tuple[tuple[int, int, int], ...]
    decodes: list[int]
    arrived: tuple[tuple[int, float, int], ...]
    admitted: tuple[int, ...]
    retracted: tuple[int, ...]
    finished: tuple[int, ...]
    aborted: tuple[int, ...]
    free_tokens: int
    evictable_tokens: int
    protected_tokens: int
    evicted_tokens: int
    num_running: int
    num_waiting: int

    @classmethod
    def of(cls, record: StepRecord) -> Step:
        fields = asdict(record)
        sizes = asdict(fields.pop("sizes"))
        return cls(**fields | sizes | {"decodes": uids_of(record.decodes)})

    def record(self) -> StepRecord:
        """As the engine made it."""
        fields = asdict(self)
        sizes = Sizes(**{name: fields.pop(name) for name in Sizes.__struct_fields__})
        return StepRecord(**fields | {"decodes": pack_uids(self.decodes), "sizes": sizes})


class OpenRequest(msgspec.Struct, kw_only=True):
    """One sequence that waits or runs. request_id: of the HTTP request that it belongs to, if that is known.

    cached_tokens: of the prompt's, found when it was admitted. done_tokens: whose keys and values are there. waits_for:
    the uid of the one that computes what both begin with.
    """

    uid: int
    request_id: str | None
    state: State
    prompt_tokens: int
    cached_tokens: int
    done_tokens: int
    generated_tokens: int
    arrived_s: float
    admitted_s: float | None
    waits_for: int | None

    @classmethod
    def of(cls, request: RequestNow, request_id: str | None) -> OpenRequest:
        return cls(**asdict(request), request_id=request_id)

    def now(self) -> RequestNow:
        """As the engine told of it."""
        return RequestNow(**{name: getattr(self, name) for name in RequestNow.__struct_fields__})


class Spread(msgspec.Struct):
    p50: float
    p90: float
    p99: float


class Latency(msgspec.Struct):
    """Of about the last minute, as the server saw it; null: nothing was seen."""

    first_token_s: Spread | None
    token_gap_s: Spread | None
    total_s: Spread | None
    queue_s: Spread | None


class CapacityPoint(msgspec.Struct):
    """hit_rate: of prompt tokens, with a pool `factor` times as large."""

    factor: float
    hit_rate: float


class ActivityNow(msgspec.Struct, kw_only=True):
    """What the engine does. Times are seconds since its start.

    next: to ask with as `since` the next time. steps: of the last 512; the first question begins their recording, and
    30 s without one end it. causes: prompt tokens by why they were computed, or not. requests: 512 at most.
    """

    now_s: float
    next: int
    stats: EngineStats
    capacity: list[CapacityPoint]
    causes: dict[str, int]
    steps: list[Step]
    requests: list[OpenRequest]
    latency: Latency

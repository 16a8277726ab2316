"""What an engine did step by step, for people to look at. Times are seconds on the clock of the engine's start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from minisgl.message.stats import EngineStats

State = Literal["waiting", "prefill", "decode"]


class Sizes(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """At a step's end. free, evictable, protected: tokens of the pool, as in `EngineStats`; the rest of it is private.

    evicted: tokens forgotten in the step for want of pages.
    """

    free_tokens: int
    evictable_tokens: int
    protected_tokens: int
    evicted_tokens: int
    num_running: int
    num_waiting: int


class StepRecord(msgspec.Struct, frozen=True, array_like=True, gc=False, kw_only=True):
    """One turn of the loop.

    step: counts the turns that were recorded. begin_s: when its messages had come. Of its time went: plan_s to taking
    them in and choosing the batch, launch_s to the forward call, wait_s to waiting for results, commit_s to taking
    these in and telling of them. settled_s: planning before the batch in flight was waited for and committed, where
    pages had run out; None: it was waited for after the launch.
    device_s: when the device began and ended this turn's batch, known once that is committed; None if there was none.
    prefills: (uid, begin, end) of the tokens of each prompt that it computed. decodes: uids, 8 bytes each; `uids_of`.
    arrived: (uid, when, prompt tokens). finished: uids that ended, `aborted` among them. At most 1024 of either.
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
    decodes: bytes
    arrived: tuple[tuple[int, float, int], ...]
    admitted: tuple[int, ...]
    retracted: tuple[int, ...]
    finished: tuple[int, ...]
    aborted: tuple[int, ...]
    sizes: Sizes


class RequestNow(msgspec.Struct, frozen=True, array_like=True, gc=False, kw_only=True):
    """One request that waits or runs.

    cached_tokens: found in the cache at its first admission. done_tokens: whose KV is there. waits_for: the uid of the
    one that computes what both begin with.
    """

    uid: int
    state: State
    prompt_tokens: int
    cached_tokens: int
    done_tokens: int
    generated_tokens: int
    arrived_s: float
    admitted_s: float | None
    waits_for: int | None


class Activity(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What an engine does. steps: of the last 512, those that were asked for. next_step: to go on with.

    requests: those that run, then those that wait, 512 at most.
    """

    stats: EngineStats
    steps: list[StepRecord]
    next_step: int
    requests: list[RequestNow]


def pack_uids(uids: npt.NDArray[np.int64] | Sequence[int]) -> bytes:
    return np.asarray(uids, "<i8").tobytes()


def uids_of(packed: bytes) -> list[int]:
    """The other way round."""
    uids: list[int] = np.frombuffer(packed, "<i8").tolist()
    return uids

"""Records of steps as events of a Chrome trace, which Perfetto reads.

    engine      scheduler   plan, commit            requests    one track each: waiting, prefill, decode
                host        launch, wait
                device      batches
                counters: requests, tokens of the pool

An arrow leads from where a request came in through each part of its prompt and its first decode to where it ended.
Arrows begin and end in slices of threads, so these are the scheduler's plan and commit, and the device's batches.
Format: "Trace Event Format", https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from minisgl.message import RequestNow, StepRecord
from minisgl.message.activity import uids_of

Event = dict[str, Any]
ENGINE, REQUESTS = 1, 2  # processes
SCHEDULER, HOST, DEVICE = 1, 2, 3  # threads of the first
_THREADS = {SCHEDULER: "scheduler", HOST: "host", DEVICE: "device"}
_IN_THREAD = {"plan": SCHEDULER, "launch": HOST, "wait": HOST, "commit": SCHEDULER}
_MAX_NAMED = 64  # requests that a batch's slice names


class Slice(NamedTuple):
    """Of a thread. In whole nanoseconds, so that no rounding makes one begin before the one before it ends."""

    name: str
    thread: int
    begin: int
    end: int

    @classmethod
    def of(cls, name: str, thread: int, begin_s: float, end_s: float) -> Slice:
        begin = _nanoseconds(begin_s)
        return cls(name, thread, begin, max(begin, _nanoseconds(end_s)))

    @property
    def middle(self) -> int:
        return (self.begin + self.end) // 2

    def event(self, args: dict[str, Any]) -> Event:
        times = {"ts": self.begin / 1000, "dur": (self.end - self.begin) / 1000}
        return {"ph": "X", "name": self.name, "pid": ENGINE, "tid": self.thread, **times, "args": args}


@dataclass
class _Track:
    """A request that is not over: its state, since when, and whether an arrow of it has begun."""

    state: str
    since: int
    has_arrow: bool = False


class TraceEvents:
    """Makes the events; remembers which requests are open. pool_tokens: how many the KV pool holds."""

    def __init__(self, pool_tokens: int) -> None:
        self._pool_tokens = pool_tokens
        self._tracks: dict[int, _Track] = {}
        self._before: list[RequestNow] = []
        self._last = 0
        self._next_step: int | None = None

    def beginning(self, requests: Iterable[RequestNow] = ()) -> Iterator[Event]:
        """Names. requests: that are open already, whose tracks begin with the first step."""
        yield _named("process_name", ENGINE, 0, name="engine")
        yield _named("process_name", REQUESTS, 0, name="requests")
        for thread, name in _THREADS.items():
            yield _named("thread_name", ENGINE, thread, name=name)
            yield _named("thread_sort_index", ENGINE, thread, sort_index=thread)
        self._before = list(requests)

    def of(self, record: StepRecord) -> Iterator[Event]:
        """Those of one step. Steps come in order. Where some are missing, requests end, and begin again when seen."""
        if self._next_step not in (None, record.step):
            yield from self.end()
        self._next_step = record.step + 1
        parts, decodes = _slices(record), uids_of(record.decodes)
        slices = {each.name: each for each in parts}  # of two plans the later one
        batch = _batch(record, len(decodes), slices["launch"])
        happened = {"plan": True, "launch": record.prefills or decodes, "wait": record.wait_s, "commit": True}
        for each in parts:
            if happened[each.name]:
                yield each.event({"step": record.step})
        if batch.thread == DEVICE:
            yield batch.event(_contents(record, decodes))
        self._last = slices["commit"].end
        yield from self._counters(record)
        yield from self._those_before(record, parts[0])
        yield from self._arrivals(record, parts[0])
        yield from self._changes(record, slices["plan"])
        yield from self._computed(record, decodes, batch)
        for uid in record.finished:
            yield from self._arrow(uid, slices["commit"], is_last=True)
            yield from self._close(uid, slices["commit"].middle)

    def end(self) -> Iterator[Event]:
        """Requests that are not over end with the trace."""
        for uid in list(self._tracks):
            yield from self._close(uid, self._last)

    # ---- requests

    def _those_before(self, record: StepRecord, plan: Slice) -> Iterator[Event]:
        """Requests that were there before the first step; what they were at before that is not known.

        It may have begun before they were told of: then their states are of its end, and some only arrived in it.
        """
        arrived, prefills = ({uid for uid, *_ in part} for part in (record.arrived, record.prefills))
        for each in self._before:
            if each.uid not in arrived:
                state = "waiting" if each.uid in record.admitted else "prefill" if each.uid in prefills else each.state
                yield from self._open(each.uid, plan.begin, each.prompt_tokens, state)
        self._before = []

    def _arrivals(self, record: StepRecord, plan: Slice) -> Iterator[Event]:
        for uid, at, prompt_tokens in record.arrived:
            yield from self._open(uid, _nanoseconds(at), prompt_tokens)
            yield from self._arrow(uid, plan)

    def _changes(self, record: StepRecord, plan: Slice) -> Iterator[Event]:
        for uid in record.retracted:
            yield from self._enter(uid, "waiting", plan.middle)
        for uid in record.admitted:
            yield from self._enter(uid, "prefill", plan.end)

    def _computed(self, record: StepRecord, decodes: list[int], batch: Slice) -> Iterator[Event]:
        for uid, _, _ in record.prefills:
            if uid not in self._tracks:
                yield from self._enter(uid, "prefill", batch.begin)
            yield from self._arrow(uid, batch)
        for uid in decodes:
            if (track := self._tracks.get(uid)) is None or track.state != "decode":
                yield from self._enter(uid, "decode", batch.begin)
                yield from self._arrow(uid, batch)

    def _open(self, uid: int, at: int, prompt_tokens: int | None = None, state: str = "waiting") -> Iterator[Event]:
        """It is in this state from now on."""
        self._tracks[uid] = _Track(state, at)
        yield _async("b", uid, f"request {uid}", at, {} if prompt_tokens is None else {"prompt_tokens": prompt_tokens})
        yield _async("b", uid, state, at)

    def _enter(self, uid: int, state: str, at: int) -> Iterator[Event]:
        """Another state; the first one of a request whose arrival nobody told of."""
        if uid not in self._tracks:
            yield from self._open(uid, at, state=state)
            return
        track = self._tracks[uid]
        at = max(at, track.since)
        yield _async("e", uid, track.state, at)
        yield _async("b", uid, state, at)
        track.state, track.since = state, at

    def _close(self, uid: int, at: int) -> Iterator[Event]:
        if (track := self._tracks.pop(uid, None)) is not None:
            at = max(at, track.since)
            yield _async("e", uid, track.state, at)
            yield _async("e", uid, f"request {uid}", at)

    def _arrow(self, uid: int, there: Slice, is_last: bool = False) -> Iterator[Event]:
        """On to this slice; the first one only leaves from there."""
        if (track := self._tracks.get(uid)) is None or (is_last and not track.has_arrow):
            return
        phase = "f" if is_last else "t" if track.has_arrow else "s"
        track.has_arrow = True
        event = {"ph": phase, "cat": "request", "name": "request", "id": uid, "pid": ENGINE, "tid": there.thread}
        yield event | {"ts": there.middle / 1000} | ({"bp": "e"} if is_last else {})

    # ---- counters

    def _counters(self, record: StepRecord) -> Iterator[Event]:
        sizes, at = record.sizes, self._last / 1000
        in_use = self._pool_tokens - sizes.free_tokens - sizes.evictable_tokens
        tokens = {"in use": in_use, "cached": sizes.evictable_tokens, "free": sizes.free_tokens}
        requests = {"running": sizes.num_running, "waiting": sizes.num_waiting}
        for name, values in {"requests": requests, "pool tokens": tokens}.items():
            yield {"ph": "C", "name": name, "pid": ENGINE, "tid": 0, "ts": at, "args": values}


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)


def _slices(record: StepRecord) -> list[Slice]:
    """What the host did, one after the other."""
    parts = [("plan", record.plan_s), ("launch", record.launch_s), ("wait", record.wait_s), ("commit", record.commit_s)]
    if (first := record.settled_s) is not None:
        _, launch, wait, commit = parts
        parts = [("plan", first), wait, commit, ("plan", record.plan_s - first), launch]
    slices, at = [], record.begin_s
    for name, seconds in parts:
        slices.append(Slice.of(name, _IN_THREAD[name], at, at + seconds))
        at += seconds
    return slices


def _batch(record: StepRecord, num_decodes: int, launch: Slice) -> Slice:
    """Its slice on the device; the launch itself where it is not known when that worked."""
    if record.device_s is None:
        return launch
    parts = {"prefill": sum(end - begin for _, begin, end in record.prefills), "decode": num_decodes}
    name = " + ".join(f"{part} {num}" for part, num in parts.items() if num)
    return Slice.of(name, DEVICE, *record.device_s)


def _contents(record: StepRecord, decodes: list[int]) -> dict[str, Any]:
    return {
        "step": record.step,
        "decodes": len(decodes),
        "decoding": decodes[:_MAX_NAMED],
        "prefills": [f"request {uid}: {begin}..{end}" for uid, begin, end in record.prefills[:_MAX_NAMED]],
    }


def _named(kind: str, process: int, thread: int, **args: Any) -> Event:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": args}


def _async(phase: str, uid: int, name: str, at: int, args: dict[str, Any] | None = None) -> Event:
    track = {"cat": "request", "id2": {"local": hex(uid)}, "pid": REQUESTS, "tid": 0}  # local: of that process
    event = {"ph": phase, "name": name, "ts": at / 1000, **track}
    return event | {"args": args} if args else event

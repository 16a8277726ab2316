"""A Chrome trace, checked against what Perfetto takes it for."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

Event = dict[str, Any]
NEEDED = {
    "M": {"name", "pid", "args"},
    "X": {"name", "pid", "tid", "ts", "dur"},
    "b": {"name", "cat", "id2", "pid", "ts"},
    "e": {"name", "cat", "id2", "pid", "ts"},
    "s": {"name", "cat", "id", "pid", "tid", "ts"},
    "t": {"name", "cat", "id", "pid", "tid", "ts"},
    "f": {"name", "cat", "id", "pid", "tid", "ts", "bp"},
    "C": {"name", "pid", "ts", "args"},
}


def read_trace(path: Path) -> list[Event]:
    """The events; a file that breaks off, as it does when its writer is killed, is read as far as it goes."""
    text = path.read_text(encoding="utf-8")
    try:
        events: list[Event] = json.loads(text)
    except json.JSONDecodeError:
        assert text.startswith("[\n")
        events = [json.loads(line.removesuffix(",")) for line in text.splitlines()[1:]]
    return events


def check_trace(events: list[Event]) -> None:
    for event in events:
        missing = NEEDED[event["ph"]] - set(event)
        assert not missing, f"{event} lacks {missing}"
    _check_slices(events)
    _check_tracks(events)
    _check_arrows(events)
    for counter in of(events, "C"):
        assert all(isinstance(value, int) and value >= 0 for value in counter["args"].values()), counter


def of(events: list[Event], *phases: str) -> list[Event]:
    return [event for event in events if event["ph"] in phases]


def slices_of(events: list[Event]) -> dict[str, list[Event]]:
    """By the thread's name, in order of time."""
    names = {event["tid"]: event["args"]["name"] for event in of(events, "M") if event["name"] == "thread_name"}
    found: dict[str, list[Event]] = defaultdict(list)
    for event in sorted(of(events, "X"), key=lambda event: event["ts"]):
        found[names[event["tid"]]].append(event)
    return found


def states_of(events: list[Event], uid: int) -> list[tuple[str, float, float]]:
    """Of a request: what it was at, from when to when."""
    states, begun = [], dict[str, float]()
    for event in _track(events, hex(uid)):
        if event["ph"] == "b":
            begun[event["name"]] = event["ts"]
        elif event["name"] in ("waiting", "prefill", "decode"):
            states.append((event["name"], begun[event["name"]], event["ts"]))
    return states


def arrows_of(events: list[Event], uid: int) -> list[tuple[str, str]]:
    """Of a request: the phases and the slices to which they belong, in order of time."""
    found = sorted((event for event in of(events, "s", "t", "f") if event["id"] == uid), key=lambda event: event["ts"])
    return [(event["ph"], _enclosing(events, event)["name"]) for event in found]


def _check_slices(events: list[Event]) -> None:
    for name, slices in slices_of(events).items():
        end = 0.0
        for each in slices:
            assert round(each["ts"] * 1000) >= round(end * 1000), (
                f"{each} begins before the one before it in {name} ends"
            )
            end = each["ts"] + each["dur"]


def _check_tracks(events: list[Event]) -> None:
    for identity in {event["id2"]["local"] for event in of(events, "b", "e")}:
        stack: list[str] = []
        at = 0.0
        for event in _track(events, identity):
            assert event["ts"] >= at, f"{event} goes back in time"
            at = event["ts"]
            if event["ph"] == "b":
                stack.append(event["name"])
            else:
                assert stack.pop() == event["name"], f"{event} ends what has not begun last"


def _track(events: list[Event], identity: str) -> list[Event]:
    return sorted(
        (each for each in of(events, "b", "e") if each["id2"]["local"] == identity), key=lambda event: event["ts"]
    )


def _check_arrows(events: list[Event]) -> None:
    for uid in {event["id"] for event in of(events, "s", "t", "f")}:
        phases = "".join(phase for phase, _ in arrows_of(events, uid))
        assert phases[0] == "s", f"the arrow of {uid} begins with {phases}"
        assert set(phases[1:-1]) <= {"t"}, f"the arrow of {uid} goes {phases}"


def _enclosing(events: list[Event], arrow: Event) -> Event:
    """The slice that Perfetto binds it to."""
    found = [
        each
        for each in of(events, "X")
        if (each["pid"], each["tid"]) == (arrow["pid"], arrow["tid"])
        and each["ts"] <= arrow["ts"] <= each["ts"] + each["dur"]
    ]
    assert found, f"no slice at {arrow}"
    return found[-1]

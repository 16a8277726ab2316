"""Kernels of a profiler's trace by the kind of work that they do, told by their names.

The names are those of torch, cuBLAS, CUTLASS, FlashInfer and our own Triton kernels.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DEVICE_KINDS = ("kernel", "gpu_memcpy", "gpu_memset")
_KINDS = (
    ("gemm", r"linear|gemm|gemv|nvjet|xmma|cublas|splitk|matmul|addmm|\bmm\b"),
    ("norm, rotary, store", r"norm|rotary|rotate|rope|store|silu|activate|act_and_mul"),
    (
        "sampling",
        r"sampl|softmax|argmax|multinomial|topk|top_k|top_p|sort|uniform|random|distribution|cumsum|scan|^_pick",
    ),
    ("attention", r"attention|attn|flash|decode|prefill|extend|prefix|merge|paged|cascade|kv_ind|^_tiles"),
    ("copies", r"memcpy|memset|copy"),
)
_WRAPPER = "cutlass::device_kernel"  # says nothing; its arguments do
REST = "rest"
KINDS = (*(kind for kind, _ in _KINDS), REST)


@dataclass(frozen=True)
class Event:
    """Times in microseconds."""

    name: str
    begin: float
    end: float


def kind_of(name: str) -> str:
    """One of KINDS. A template is known by its own name first: its arguments may name other things."""
    name = name.lower().removeprefix("void ")
    head = name.partition("<")[0]
    for text in (name,) if head == _WRAPPER else (head, name):
        for kind, pattern in _KINDS:
            if re.search(pattern, text):
                return kind
    return REST


def read_trace(path: Path, on_gpu: bool) -> list[Event]:
    """What the device did, in order; of a CPU the outermost operators."""
    kinds = DEVICE_KINDS if on_gpu else ("cpu_op",)
    found = [_event(raw) for raw in json.loads(path.read_text())["traceEvents"] if raw.get("cat") in kinds]
    found.sort(key=lambda event: (event.begin, -event.end))
    return found if on_gpu else list(_outermost(found))


def _event(raw: dict[str, Any]) -> Event:
    return Event(raw["name"], float(raw["ts"]), float(raw["ts"]) + float(raw["dur"]))


def _outermost(events: Iterable[Event]) -> Iterable[Event]:
    end = 0.0
    for event in events:
        if event.begin >= end:
            end = event.end
            yield event


def busy_us(events: Iterable[Event]) -> float:
    """Time in which at least one of these ran. events: in order of their beginnings."""
    total, end = 0.0, 0.0
    for event in events:
        total += max(0.0, event.end - max(event.begin, end))
        end = max(end, event.end)
    return total


def by_kind(events: Iterable[Event]) -> dict[str, tuple[int, float]]:
    """How many events, and their time in us, by kind; two that run at once both count."""
    counts: dict[str, int] = defaultdict(int)
    times: dict[str, float] = defaultdict(float)
    for event in events:
        kind = kind_of(event.name)
        counts[kind] += 1
        times[kind] += event.end - event.begin
    return {kind: (counts[kind], times[kind]) for kind in KINDS}


def by_name(events: Iterable[Event]) -> list[tuple[str, int, float]]:
    """Name, number and time in us of each kernel, the longest first."""
    times: dict[str, list[float]] = defaultdict(list)
    for event in events:
        times[event.name].append(event.end - event.begin)
    found = [(name, len(each), sum(each)) for name, each in times.items()]
    return sorted(found, key=lambda row: -row[2])

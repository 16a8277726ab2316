"""What a chat says at /stats: the same lines of a model that is loaded here and of one that a server has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any

import msgspec

from minisgl.cli.capacity import capacity_lines
from minisgl.message import EngineStats, hit_rates

COUNTERS = [field.name for field in fields(EngineStats)]
SHOWN = (
    *("computed_tokens", "num_retracted", "num_batches", "host_s"),
    *("page_size", "num_pages", "free_pages", "evictable_tokens", "protected_tokens"),
)


def stats_lines(values: Mapping[str, Any], rates: Iterable[tuple[float, float | None]]) -> list[str]:
    """A line for each value, and one of other pools' hit rates, as (factor, rate)."""
    return [*(f"{name}: {_shown(name, value)}" for name, value in values.items()), *capacity_lines(rates)]


def server_lines(info: Any) -> list[str]:
    """Of what a server says of itself at /get_server_info: of one of minisgl the same, of another all of it."""
    try:
        (state,) = info["internal_states"]
        stats = msgspec.convert({name: state[name] for name in COUNTERS}, EngineStats)
        return stats_lines(_values(stats), hit_rates(stats))
    except (LookupError, TypeError, ValueError, msgspec.ValidationError):
        return list(_flat(info))


def _values(stats: EngineStats) -> dict[str, Any]:
    """By the names that they have in this process."""
    return {
        "prompts": stats.num_finished,
        "prompt_tokens": stats.queried_tokens,
        "cached_tokens": stats.hit_tokens,
        "generated_tokens": stats.generated_tokens,
        "hit_rate": stats.hit_tokens / max(1, stats.queried_tokens),
        **{name: getattr(stats, name) for name in SHOWN},
    }


def _shown(name: str, value: Any) -> str:
    if name == "hit_rate":
        return f"{value:.1%}"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _flat(value: Any, name: str = "") -> Iterator[str]:
    """Nested objects as lines "a.b: value"."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _flat(item, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
        for index, item in enumerate(value):
            yield from _flat(item, f"{name}[{index}]")
    else:
        yield f"{name}: {value}"

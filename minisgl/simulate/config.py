"""What a simulation is made from; the command's flags come from these fields."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from minisgl.scheduler.config import SchedulerConfig
from minisgl.simulate.step_time import STEP_TIMES, StepTimes
from minisgl.utils.options import check_choices, check_minimum, option

_WITH_CLOCK = (
    "load", "sessions", "max_tokens", "max_running_req", "engine", "overhead_ms", "prefill_us", "decode_us",
    "context_ns", "max_extend_tokens", "cache_type", "policy", "max_overtakes", "reserve",
)  # fmt: skip

_LOOKAHEAD: Any = SchedulerConfig.__dataclass_fields__["lookahead"]


def _as_served(name: str) -> Any:
    """The scheduler's own option of this name."""
    spec = SchedulerConfig.__dataclass_fields__[name]
    return field(default=spec.default, metadata=spec.metadata)


@dataclass(frozen=True, kw_only=True)
class SimulationConfig:
    """A wrong value is a ValueError here."""

    pages: int | None = option(
        None, "pages of the KV pool (default: a tenth of the trace's different pages)", minimum=1
    )
    page_size: int | None = option(
        None, "tokens a page (default: the trace's block, at most 64; 16 where a block is one token)", minimum=1
    )
    block_size: int | None = option(
        None,
        "tokens a block of hash_ids, where the trace is in the form of Mooncake or Bailian (default: 512, and 16)",
        minimum=1,
    )
    expand: bool = option(False, "every token is one for the scheduler too, not every page: exact steps, and slower")
    limit: int | None = option(None, "only the trace's first requests, so many", minimum=1)
    clock: bool = option(True, "with a clock and the scheduler; without, request after request through the tree alone")
    load: float | None = option(
        None, "arrivals as dense as this share of what the engine can do, first come, first served (default: as traced)"
    )
    sessions: bool = option(False, "a session's next request waits for the answer to the one before")
    max_tokens: int | None = option(
        None, "tokens that every request asks for at most (default: as many as it will get)", minimum=1
    )
    max_running_req: int = option(256, "requests that run at the same time", flag="max-running", minimum=1)
    engine: str = option("h200-8b", "whose step times are taken", choices=STEP_TIMES.names)
    overhead_ms: float | None = option(None, "milliseconds of any step (default: the engine's)")
    prefill_us: float | None = option(None, "microseconds a prompt token (default: the engine's)")
    decode_us: float | None = option(None, "microseconds a generated token (default: the engine's)")
    context_ns: float | None = option(None, "nanoseconds a token that attention reads (default: the engine's)")
    max_extend_tokens: int = option(
        2048, "prompt tokens computed in one batch; longer prompts are cut into chunks", minimum=1
    )
    cache_type: str = _as_served("cache_type")
    policy: str = _as_served("policy")
    max_overtakes: int = _as_served("max_overtakes")
    lookahead: int | None = option(
        None, f"{_LOOKAHEAD.metadata['help']} (default: {_LOOKAHEAD.default} with a clock, 0 without)", minimum=0
    )
    eviction: str = _as_served("eviction")
    reserve: str = _as_served("reserve")

    def __post_init__(self) -> None:
        check_choices(self)
        check_minimum(self)
        if self.load is not None and not 0 < self.load < float("inf"):
            raise ValueError(f"load={self.load!r} is not over 0")
        _ = self.step_times  # checks them
        useless = [name for name in _WITH_CLOCK if not self.clock and self._is_given(name)]
        if useless:
            raise ValueError(f"{useless[0]}={getattr(self, useless[0])!r} does nothing without a clock")
        for name in ("policy", "eviction"):
            if getattr(self, name) == "priority":
                raise ValueError(f"{name}='priority' does nothing without priorities, and a trace has none")

    def _is_given(self, name: str) -> bool:
        return bool(getattr(self, name) != self.__dataclass_fields__[name].default)

    @property
    def lookahead_width(self) -> int:
        """Waiting requests that look-ahead sees: as in a server with a clock, none without, unless it was given."""
        if self.lookahead is not None:
            return self.lookahead
        return int(_LOOKAHEAD.default) if self.clock else 0

    @property
    def step_times(self) -> StepTimes:
        """The engine's, with what is given instead."""
        own = vars(STEP_TIMES[self.engine])
        return StepTimes(**{name: own[name] if (v := getattr(self, name)) is None else v for name in own})

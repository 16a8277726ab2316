"""Everything an `LLM` is built from: the engine's fields and the scheduler's, side by side."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from minisgl.engine.config import EngineConfig
from minisgl.env import ENV
from minisgl.scheduler.config import SchedulerConfig
from minisgl.utils.spelling import nearest


@dataclass(frozen=True, kw_only=True)
class LLMConfig:
    engine: EngineConfig
    scheduler: SchedulerConfig

    @classmethod
    def from_kwargs(cls, **kwargs: Any) -> LLMConfig:
        """From flat keywords, as `LLM(...)` takes them. TypeError names an unknown one."""
        engine = {field.name for field in fields(EngineConfig)}
        scheduler = {field.name for field in fields(SchedulerConfig)}
        if unknown := sorted(set(kwargs) - engine - scheduler):
            meant = [nearest(name, sorted(engine | scheduler)) for name in unknown]
            hint = f"; did you mean {', '.join(filter(None, meant))}?" if any(meant) else ""
            known = ", ".join(sorted(engine | scheduler))
            raise TypeError(f"unknown option {', '.join(unknown)}{hint}; known are {known}")
        return cls(
            engine=EngineConfig(**{name: value for name, value in kwargs.items() if name in engine}),
            scheduler=SchedulerConfig(**{name: value for name, value in kwargs.items() if name in scheduler}),
        )

    def to_kwargs(self) -> dict[str, Any]:
        """The flat keywords that make an equal one: texts, numbers and None."""
        return asdict(self.engine) | asdict(self.scheduler)


def resolve_overlap(config: SchedulerConfig, device_type: str) -> bool:
    """auto: on where a device works while the host plans; MINISGL_DISABLE_OVERLAP_SCHEDULING turns it off anywhere."""
    if ENV.DISABLE_OVERLAP_SCHEDULING.value:
        return False
    return device_type != "cpu" if config.overlap == "auto" else config.overlap == "on"

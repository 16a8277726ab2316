"""What the scheduler is built from."""

from __future__ import annotations

from dataclasses import dataclass

from minisgl.utils.options import check_choices, check_minimum, option


@dataclass(frozen=True, kw_only=True)
class SchedulerConfig:
    """A wrong value is a ValueError here. overlap "auto": where host and device work at the same time."""

    cache_type: str = option(
        "radix", "prefix cache: radix reuses every computed prefix, naive none", choices=("radix", "naive")
    )
    max_extend_tokens: int = option(
        2048, "prompt tokens computed in one batch; longer prompts are cut into chunks", minimum=1
    )
    overlap: str = option("auto", "plan the next batch while one runs", choices=("auto", "on", "off"))

    def __post_init__(self) -> None:
        check_choices(self)
        check_minimum(self)

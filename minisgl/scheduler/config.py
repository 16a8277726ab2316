"""What the scheduler is built from."""

from __future__ import annotations

from dataclasses import dataclass

from minisgl.utils.options import option


@dataclass(frozen=True, kw_only=True)
class SchedulerConfig:
    """`overlap` "auto" is turned into a value, once, by `resolve`."""

    cache_type: str = option("radix", "prefix cache: radix reuses every computed prefix, naive none", choices=("radix", "naive"))
    max_extend_tokens: int = option(2048, "prompt tokens computed in one batch; longer prompts are cut into chunks")
    overlap: str | bool = option("auto", "plan the next batch while one runs", choices=("auto", "on", "off"))

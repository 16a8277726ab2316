"""What the scheduler is built from."""

from __future__ import annotations

from dataclasses import dataclass

from minisgl.utils.options import check_choices, check_minimum, option

MAX_GHOST_TOKENS = 1 << 22  # unless more are asked for: 16 MiB of ids


@dataclass(frozen=True, kw_only=True)
class SchedulerConfig:
    """A wrong value is a ValueError here. overlap "auto": where host and device work at the same time."""

    cache_type: str = option(
        "radix", "prefix cache: radix reuses every computed prefix, naive none", choices=("radix", "naive")
    )
    max_extend_tokens: int | None = option(
        None,
        "prompt tokens computed in one batch; longer prompts are cut into chunks (default: 2048 on GPUs, 512 on CPUs)",
        minimum=1,
    )
    overlap: str = option("auto", "plan the next batch while one runs", choices=("auto", "on", "off"))
    policy: str = option(
        "fcfs",
        "who of the waiting requests is next: fcfs first come, lpm longest cached prefix, dfs-weight the most wanted"
        " branch of the tree, priority the client's number, srp shortest remaining prefill",
        choices=("fcfs", "lpm", "dfs-weight", "priority", "srp"),
    )
    max_overtakes: int = option(64, "requests that may be served before one that came earlier", minimum=1)
    lookahead: int = option(256, "waiting requests whose cached prefixes are evicted last; 0: none", minimum=0)
    eviction: str = option(
        "lru",
        "which cached leaf is forgotten first when pages run out",
        choices=("lru", "lfu", "fifo", "mru", "slru", "arc", "priority"),
    )
    reserve: str = option(
        "estimate",
        "pages kept for a request's output: estimate what such outputs took lately, full all of max_tokens",
        choices=("estimate", "full"),
    )
    explain: bool = option(
        True, "say why prompt tokens had to be computed, and estimate what a KV pool of another size would hit"
    )
    ghost_tokens: int | None = option(
        None,
        "evicted tokens that are remembered, to tell them from tokens never seen; 0: none (default: as many as the KV"
        " pool has, at most 4194304)",
        minimum=0,
    )
    trace: str | None = option(
        None, "write what the engine does, step by step, to this file, to be opened at ui.perfetto.dev (default: no)"
    )

    @property
    def heeds_priority(self) -> bool:
        """Whether a request's priority changes anything."""
        return "priority" in (self.policy, self.eviction)

    def num_ghost_tokens(self, pool_len: int) -> int | None:
        """How many evicted tokens the cache of a pool of so many remembers; None where nothing is explained."""
        if not self.explain:
            return None
        return min(pool_len, MAX_GHOST_TOKENS) if self.ghost_tokens is None else self.ghost_tokens

    def __post_init__(self) -> None:
        check_choices(self)
        check_minimum(self)
        if self.trace is not None and not isinstance(self.trace, str):
            raise ValueError(f"trace={self.trace!r} is not the name of a file")
        if self.ghost_tokens is not None and not self.explain:
            raise ValueError(f"ghost_tokens={self.ghost_tokens!r} does nothing with explain=False")
        if self.cache_type == "naive":
            self._refuse_what_needs_a_cache()

    def _refuse_what_needs_a_cache(self) -> None:
        for name in ("eviction", "lookahead", "ghost_tokens"):
            value = getattr(self, name)
            if value != self.__dataclass_fields__[name].default:
                raise ValueError(f"{name}={value!r} does nothing with cache_type='naive', which keeps nothing")

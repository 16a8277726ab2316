"""What an operator is told between start and end, as lines of the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from minisgl.utils.logging import get_logger

if TYPE_CHECKING:
    from minisgl.message import EngineInfo

logger = get_logger(__name__)


class Reporter:
    """One method for each thing that happens. Times are in seconds. has_page: whether the server shows one at /."""

    def __init__(self, has_page: bool = True) -> None:
        self._has_page = has_page

    def loading(self, address: str, model: str) -> None:
        logger.info("listening on %s, loading %s", address, model)

    def unprotected(self, host: str) -> None:
        logger.warning("whoever reaches %s may use this server: it has no --api-key", host)

    def small_pool(self, info: EngineInfo) -> None:
        """For a pool that is smaller than the context; nothing is said of another."""
        if info.pool_len < info.max_seq_len:
            logger.warning(
                "the KV pool holds %s tokens, fewer than the context of %s: longer prompts are refused, longer answers "
                "cut; --num-pages and --memory-ratio make it larger",
                f"{info.pool_len:,}",
                f"{info.max_seq_len:,}",
            )

    def sampling(self, advised: Mapping[str, int | float]) -> None:
        """How tokens are chosen where a request does not say; nothing is said where the model's files do not."""
        if advised:
            fields = ", ".join(f"{name} {value:g}" for name, value in advised.items())
            logger.info("where a request does not say: %s, as the model's files advise (--generation-config)", fields)

    def progress(self, stage: str) -> None:
        logger.info("loading: %s", stage)

    def ready(self, address: str, model: str, info: EngineInfo, seconds: float) -> None:
        logger.info("%s is loaded after %.1f s: %s", model, seconds, ", ".join(map(" ".join, facts_of(info).items())))
        logger.info("serving %s on %s%s", model, address, f", for people at {address}/" if self._has_page else "")

    def draining(self, num_open: int, timeout: float) -> None:
        logger.info(
            "shutting down: no new requests, %d open sequences get %g s; again to end at once", num_open, timeout
        )

    def drained(self, in_time: bool) -> None:
        logger.info("every request was answered" if in_time else "time is up: open requests were ended with an error")

    def died(self, reason: str) -> None:
        logger.error("%s; ending", reason)

    def close(self) -> None:
        """Nothing more will be reported; the last call, whatever happened."""


def facts_of(info: EngineInfo) -> dict[str, str]:
    """What "auto" became on this machine, by a word for each."""
    return {
        "weights": f"{info.dtype} on {info.device}",
        "context": f"{info.max_seq_len:,} tokens",
        "KV pool": f"{info.pool_len:,} tokens in pages of {info.page_size}",
        "prefix cache": info.cache_type,
        "policy": ", ".join(_policy(info)),
        "runs": f"{info.max_running_req} sequence{'s' * (info.max_running_req != 1)} at once",
    }


def _policy(info: EngineInfo) -> list[str]:
    """Who is next and how many go before him, what is evicted where something is cached, and what is reserved."""
    cached = [f"eviction {info.eviction}", f"look-ahead {info.lookahead}"] if info.cache_type != "naive" else []
    return [info.policy, f"max-overtakes {info.max_overtakes}", *cached, f"reserve {info.reserve}"]

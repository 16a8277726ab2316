"""What an operator is told between start and end, as lines of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minisgl.utils.logging import get_logger

if TYPE_CHECKING:
    from minisgl.message import EngineInfo

logger = get_logger(__name__)


class Reporter:
    """One method for each thing that happens. Times are in seconds."""

    def loading(self, address: str, model: str) -> None:
        logger.info("listening on %s, loading %s", address, model)

    def unprotected(self, host: str) -> None:
        logger.warning("whoever reaches %s may use this server: it has no --api-key", host)

    def progress(self, stage: str) -> None:
        logger.info("loading: %s", stage)

    def ready(self, address: str, model: str, info: EngineInfo, seconds: float) -> None:
        logger.info("%s is loaded after %.1f s: %s", model, seconds, ", ".join(map(" ".join, facts_of(info).items())))
        logger.info("serving %s on %s", model, address)

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
        "policies": f"{info.policy}, eviction {info.eviction}, look-ahead {info.lookahead}, reserve {info.reserve}",
        "runs": f"{info.max_running_req} sequences at once",
    }

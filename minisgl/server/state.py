"""What the routes find as `request.app.state.server`. Frozen: when things change, another one is put there."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from minisgl.server.budget import Budget
from minisgl.server.config import ServerConfig
from minisgl.server.errors import ApiError
from minisgl.server.gate import Gate
from minisgl.server.metrics import Metrics
from minisgl.server.observer import Observer
from minisgl.server.records import RequestBook
from minisgl.server.running import Running
from minisgl.server.turns import Together, Turns

if TYPE_CHECKING:
    from minisgl.message import EngineInfo
    from minisgl.server.engine_client import EngineClient

ACTIVITY_EVERY_S = 0.2
TREES_AT_ONCE = 4
MAX_LARGE_BODIES, BODY_PATIENCE_S = 2**26, 20.0
MAX_UNREAD, ANSWER_PATIENCE_S = 2**26, 60.0
OPENAI_SAMPLING = {"temperature": 1.0}  # where it is not as `SamplingParams` has it
Health = Literal["ok", "loading", "draining", "dead"]


@dataclass(frozen=True, kw_only=True)
class ServerState:
    """engine, info: None while it loads. error: why the engine is dead. started_at: seconds since 1970.

    bodies: the large ones that are being read or decoded. answers: large ones, from their making until they are read.
    activity, trees: whose turn it is to ask for them. After a tree the engine has twice the time for requests alone.
    """

    config: ServerConfig
    model_name: str
    gate: Gate
    metrics: Metrics
    book: RequestBook
    running: Running = field(default_factory=Running)
    activity: Together[int] = field(default_factory=lambda: Together(Turns(1, lambda _: ACTIVITY_EVERY_S)))
    trees: Turns = field(default_factory=lambda: Turns(TREES_AT_ONCE, lambda seconds: 2 * seconds))
    bodies: Budget = field(default_factory=lambda: Budget(MAX_LARGE_BODIES, "large bodies", BODY_PATIENCE_S))
    answers: Budget = field(default_factory=lambda: Budget(MAX_UNREAD, "unread answers", ANSWER_PATIENCE_S))
    engine: EngineClient | None = None
    info: EngineInfo | None = None
    error: str | None = None
    started_at: float = field(default_factory=time.time)

    def health(self) -> Health:
        if self.error is not None:
            return "dead"
        if self.gate.is_draining:
            return "draining"
        return "loading" if self.engine is None else "ok"

    @property
    def sampling_defaults(self) -> Mapping[str, int | float]:
        """How to sample where a request does not say."""
        return OPENAI_SAMPLING | self.advised_sampling

    @property
    def advised_sampling(self) -> dict[str, int | float]:
        """What of that the model's files say."""
        is_taken = self.config.generation_config == "auto"
        return self.info.sampling_defaults if is_taken and self.info is not None else {}

    def ready_engine(self) -> EngineClient:
        """The engine, to be asked something. ApiError 503 while it loads or when it is dead."""
        if self.error is not None:
            raise ApiError(503, self.error, code="engine_dead")
        if self.engine is None:
            raise ApiError(503, "the model is being loaded", code="model_loading", headers={"Retry-After": "1"})
        return self.engine

    def observe(self) -> Observer:
        """What follows one generating request, for its log line and the metrics."""
        return Observer(self.book, self.metrics, self.config.ui_show_text)

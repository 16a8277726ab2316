"""The engine's process, as the lifecycle handles it."""

from __future__ import annotations

import asyncio

from minisgl.llm import AsyncClient, LLMConfig, RemoteEngine
from minisgl.message import EngineInfo
from minisgl.server.lifecycle import Tell

SHUTDOWN_S = 3.0  # for the step that runs; open requests have had their time


class RemoteHandle:
    """An EngineHandle of a `RemoteEngine`, whose process begins to load right away."""

    def __init__(self, config: LLMConfig, on_progress: Tell, on_death: Tell) -> None:
        self._engine = RemoteEngine(config, on_progress=on_progress, on_death=on_death)

    async def ready(self) -> tuple[AsyncClient, EngineInfo]:
        """Once it has loaded, and the tokenizer here too."""
        info = await asyncio.wrap_future(self._engine.ready)
        return AsyncClient(await asyncio.to_thread(self._engine.connect)), info

    def shutdown(self) -> None:
        self._engine.shutdown(SHUTDOWN_S)

    def kill(self) -> None:
        self._engine.shutdown(timeout=0)

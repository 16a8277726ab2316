"""`LLM` and `AsyncLLM`: engine, scheduler and tokenizer in one object. `RemoteEngine`: an engine in its own process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minisgl.llm.async_client import AsyncClient
from minisgl.llm.async_llm import AsyncLLM
from minisgl.llm.client import Client, Delta
from minisgl.llm.config import LLMConfig
from minisgl.llm.llm import LLM
from minisgl.llm.stream import Output
from minisgl.message import EngineInfo

if TYPE_CHECKING:
    from minisgl.llm.remote_engine import RemoteEngine

__all__ = ["LLM", "AsyncClient", "AsyncLLM", "Client", "Delta", "EngineInfo", "LLMConfig", "Output", "RemoteEngine"]


def __getattr__(name: str) -> Any:
    if name == "RemoteEngine":  # needs the packages of the extra "server", which nothing else here does
        from minisgl.llm.remote_engine import RemoteEngine

        return RemoteEngine
    raise AttributeError(f"module 'minisgl.llm' has no attribute {name!r}")

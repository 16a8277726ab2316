"""`LLM` and `AsyncLLM`: engine, scheduler and tokenizer in one object. `RemoteEngine`: an engine in its own process."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from minisgl.llm.async_client import AsyncClient
from minisgl.llm.client import Client
from minisgl.llm.config import LLMConfig
from minisgl.llm.router import EngineDied
from minisgl.llm.stream import Output
from minisgl.llm.submission import Delta
from minisgl.message import EngineInfo

if TYPE_CHECKING:
    from minisgl.llm.async_llm import AsyncLLM
    from minisgl.llm.llm import LLM
    from minisgl.llm.remote_engine import RemoteEngine

__all__ = [
    "LLM",
    "AsyncClient",
    "AsyncLLM",
    "Client",
    "Delta",
    "EngineDied",
    "EngineInfo",
    "LLMConfig",
    "Output",
    "RemoteEngine",
]

# Imported when they are asked for: the first two need torch, the last one the packages of the extra "server".
_LAZY = {"LLM": "minisgl.llm.llm", "AsyncLLM": "minisgl.llm.async_llm", "RemoteEngine": "minisgl.llm.remote_engine"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'minisgl.llm' has no attribute {name!r}")

"""What an engine that nobody loaded says of itself."""

from __future__ import annotations

from typing import Any

from minisgl.message import EngineInfo

_PLAIN: dict[str, Any] = {
    "model": "a-model",
    "path": "/models/a-model",
    "vocab_size": 300,
    "max_seq_len": 512,
    "pool_len": 2048,
    "page_size": 1,
    "num_pages": 2048,
    "end_token_ids": (),
    "dtype": "float32",
    "device": "cpu",
    "cache_type": "radix",
    "overlap": True,
    "max_running_req": 64,
    "max_extend_tokens": 512,
    "policy": "fcfs",
    "max_overtakes": 64,
    "lookahead": 256,
    "eviction": "lru",
    "reserve": "estimate",
    "heeds_priority": False,
    "explains": True,
    "pid": 1,
}


def engine_info(**changes: Any) -> EngineInfo:
    return EngineInfo(**_PLAIN | changes)

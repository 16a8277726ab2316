"""Messages between the tokenizer side and the scheduler, and the queues that carry them.

`wire` and `sockets`, which carry them to another process, need the packages of the extra "server".
"""

from minisgl.message.queues import Inbox, LocalQueue, Outbox
from minisgl.message.startup import EngineFailed, EngineInfo, EngineReady, LoadProgress
from minisgl.message.types import (
    AbortMsg,
    EngineStats,
    FinishMsg,
    FinishReason,
    FlushMsg,
    Question,
    Reply,
    RequestMsg,
    ShutdownMsg,
    StatsMsg,
    StatsReply,
    TokenReply,
    UserMsg,
)

__all__ = [
    "AbortMsg",
    "EngineFailed",
    "EngineInfo",
    "EngineReady",
    "EngineStats",
    "FinishMsg",
    "FinishReason",
    "FlushMsg",
    "Inbox",
    "LoadProgress",
    "LocalQueue",
    "Outbox",
    "Question",
    "Reply",
    "RequestMsg",
    "ShutdownMsg",
    "StatsMsg",
    "StatsReply",
    "TokenReply",
    "UserMsg",
]

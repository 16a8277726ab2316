"""Messages between the tokenizer side and the scheduler, and the queues that carry them."""

from minisgl.message.queues import Inbox, LocalQueue, Outbox
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
    "EngineStats",
    "FinishMsg",
    "FinishReason",
    "FlushMsg",
    "Inbox",
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

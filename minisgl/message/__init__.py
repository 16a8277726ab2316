"""Messages between the tokenizer side and the scheduler, and the queues that carry them.

`wire` and `sockets`, which carry them to another process, need the packages of the extra "server".
"""

from minisgl.message.activity import RequestNow, Sizes, StepRecord
from minisgl.message.capacity import hit_rates
from minisgl.message.queues import Inbox, LocalQueue, Outbox
from minisgl.message.startup import EngineFailed, EngineInfo, EngineReady, LoadProgress
from minisgl.message.types import (
    AbortMsg,
    Activity,
    ActivityMsg,
    ActivityReply,
    CountReply,
    EngineStats,
    ExplainMsg,
    ExplainReply,
    FinishMsg,
    FinishReason,
    NextTokens,
    ProbeMsg,
    PurgeMsg,
    Question,
    Reply,
    RequestMsg,
    ShutdownMsg,
    StatsMsg,
    StatsReply,
    TokenNews,
    TokenReply,
    UserMsg,
)

__all__ = [
    "AbortMsg",
    "Activity",
    "ActivityMsg",
    "ActivityReply",
    "CountReply",
    "EngineFailed",
    "EngineInfo",
    "EngineReady",
    "EngineStats",
    "ExplainMsg",
    "ExplainReply",
    "FinishMsg",
    "FinishReason",
    "Inbox",
    "LoadProgress",
    "LocalQueue",
    "NextTokens",
    "Outbox",
    "ProbeMsg",
    "PurgeMsg",
    "Question",
    "Reply",
    "RequestMsg",
    "RequestNow",
    "ShutdownMsg",
    "Sizes",
    "StatsMsg",
    "StatsReply",
    "StepRecord",
    "TokenNews",
    "TokenReply",
    "UserMsg",
    "hit_rates",
]

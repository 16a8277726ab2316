"""Messages between the tokenizer side and the scheduler, and the queues that carry them.

`wire` and `sockets`, which carry them to another process, need the packages of the extra "server".
"""

from minisgl.message.activity import Activity, RequestNow, Sizes, StepRecord
from minisgl.message.capacity import hit_rates
from minisgl.message.questions import (
    ActivityMsg,
    ActivityReply,
    CountReply,
    ExplainMsg,
    ExplainReply,
    NodeMsg,
    NodeReply,
    PathMsg,
    PathReply,
    ProbeMsg,
    PurgeMsg,
    Question,
    SlowQuestion,
    StatsMsg,
    StatsReply,
    TreeMsg,
    TreeReply,
)
from minisgl.message.queues import Inbox, LocalQueue, Outbox
from minisgl.message.startup import EngineFailed, EngineInfo, EngineReady, LoadProgress
from minisgl.message.stats import EngineStats
from minisgl.message.types import (
    AbortMsg,
    FinishMsg,
    FinishReason,
    NextTokens,
    Reply,
    RequestMsg,
    ShutdownMsg,
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
    "NodeMsg",
    "NodeReply",
    "Outbox",
    "PathMsg",
    "PathReply",
    "ProbeMsg",
    "PurgeMsg",
    "Question",
    "Reply",
    "RequestMsg",
    "RequestNow",
    "ShutdownMsg",
    "Sizes",
    "SlowQuestion",
    "StatsMsg",
    "StatsReply",
    "StepRecord",
    "TokenNews",
    "TokenReply",
    "TreeMsg",
    "TreeReply",
    "UserMsg",
    "hit_rates",
]

"""Messages between the tokenizer side and the scheduler, and the queues that carry them."""

from minisgl.message.queues import Inbox, LocalQueue, Outbox
from minisgl.message.types import AbortMsg, FinishMsg, FinishReason, RequestMsg, ShutdownMsg, TokenReply, UserMsg

__all__ = [
    "AbortMsg",
    "FinishMsg",
    "FinishReason",
    "Inbox",
    "LocalQueue",
    "Outbox",
    "RequestMsg",
    "ShutdownMsg",
    "TokenReply",
    "UserMsg",
]

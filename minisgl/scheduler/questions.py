"""What is asked of a scheduler between two steps, and its answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minisgl.kvcache.base import Namespace
from minisgl.message import (
    ActivityMsg,
    ActivityReply,
    CountReply,
    ExplainMsg,
    ExplainReply,
    ProbeMsg,
    PurgeMsg,
    Question,
    Reply,
    StatsMsg,
    StatsReply,
)

if TYPE_CHECKING:
    from minisgl.scheduler.scheduler import Scheduler


def answer(question: Question[Any], scheduler: Scheduler) -> Reply:
    """What it asks for; a purge is made. AssertionError when a recount finds something wrong."""
    if isinstance(question, ProbeMsg):
        num = scheduler.cache_manager.probe(question.input_ids, Namespace(question.cache_salt))
        return CountReply(question.uid, num)
    if isinstance(question, ExplainMsg):
        found = scheduler.cache_manager.explain(question.input_ids, Namespace(question.cache_salt))
        return ExplainReply(question.uid, found)
    if isinstance(question, PurgeMsg):
        namespace = None if question.cache_salt is None else Namespace(question.cache_salt)
        return CountReply(question.uid, scheduler.purge(namespace, question.prefix))
    if isinstance(question, ActivityMsg):
        return ActivityReply(question.uid, scheduler.activity(question.since))
    assert isinstance(question, StatsMsg), question
    if question.recount:
        scheduler.check_integrity()
    return StatsReply(question.uid, scheduler.stats())

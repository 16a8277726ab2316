"""What is asked of a scheduler between two steps, and its answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minisgl.kvcache.types import Namespace
from minisgl.kvcache.view import Slices
from minisgl.message import (
    Activity,
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
    Reply,
    SlowQuestion,
    StatsMsg,
    StatsReply,
    TreeMsg,
    TreeReply,
)
from minisgl.scheduler.activity import held_prefixes, requests_now, watches_of, with_states

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
        return ActivityReply(question.uid, _activity(scheduler, question.since))
    if isinstance(question, PathMsg):
        path = scheduler.cache_manager.prefix_cache.view.path(question.input_ids[:-1], Namespace(question.cache_salt))
        return PathReply(question.uid, path)
    assert isinstance(question, StatsMsg), question
    if question.recount:
        scheduler.check_integrity()
    return StatsReply(question.uid, scheduler.stats())


def inquire(question: SlowQuestion[Any], scheduler: Scheduler) -> Slices[Reply]:
    """The same for what takes several steps."""
    view = scheduler.cache_manager.prefix_cache.view
    if isinstance(question, TreeMsg):
        picture = yield from view.picture(question.node, question.max_nodes, question.head_len)
        return TreeReply(question.uid, picture)
    assert isinstance(question, NodeMsg), question
    handles, watches = held_prefixes(scheduler.admitted.values()), watches_of(scheduler.waiting)
    use = yield from view.use(question.node, handles, watches, question.tail_len)
    return NodeReply(question.uid, None if use is None else with_states(use, scheduler.admitted))


def _activity(scheduler: Scheduler, since: int) -> Activity:
    """What was done from step `since` on, and what is being done."""
    steps, next_step = scheduler.recorder.since(since)
    requests = requests_now(scheduler.admitted.values(), scheduler.waiting, scheduler.recorder.started_at)
    return Activity(scheduler.stats(), steps, next_step, requests)

"""Questions that take many steps to answer, while requests run and while none does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.serving import Serving

from minisgl.kvcache import folding, tree_view
from minisgl.message import (
    AbortMsg,
    NextTokens,
    NodeMsg,
    NodeReply,
    PathMsg,
    PathReply,
    PurgeMsg,
    Reply,
    ShutdownMsg,
    TokenReply,
    TreeMsg,
    TreeReply,
)

NUM_LEAVES = 40


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "NODES_A_SLICE", 4)
    monkeypatch.setattr(tree_view, "NODES_A_SLICE", 4)


@pytest.fixture
def serving() -> Serving:
    """[1 2 3 4], and 40 ends of it."""
    serving = Serving(num_pages=512)
    for i in range(NUM_LEAVES):
        serving.generate([[1, 2, 3, 4, 100 + i, 7]], max_tokens=1)
    return serving


def step(serving: Serving) -> list[Reply]:
    """One turn of the loop, which must not wait for a message."""
    serving.loop.step()
    serving.scheduler.check_integrity()
    replies: list[Reply] = serving.outbox.receive(timeout=0)
    return replies


def answers_of(replies: list[Reply]) -> list[Any]:
    return [reply for reply in replies if not isinstance(reply, TokenReply | NextTokens)]


def num_tokens(replies: list[Reply]) -> int:
    return sum(len(reply.uids) if isinstance(reply, NextTokens) else 1 for reply in replies)


def test_running_requests_get_a_token_in_every_step_meanwhile(serving: Serving) -> None:
    for first in (1, 200):
        serving.submit([first, 2, 3, 4, 5], max_tokens=100)
    step(serving)
    serving.inbox.send([TreeMsg(900, max_nodes=30)])
    num_steps, replies = 1, step(serving)
    while not answers_of(replies):
        assert num_tokens(replies) == 2
        num_steps, replies = num_steps + 1, step(serving)
    (reply,) = answers_of(replies)
    assert isinstance(reply, TreeReply)
    assert reply.answer is not None
    assert (reply.uid, len(reply.answer.ids)) == (900, 30)
    assert num_steps > NUM_LEAVES / 4


def test_an_idle_loop_goes_on_until_the_answer_is_out_and_takes_in_what_comes(serving: Serving) -> None:
    serving.inbox.send([TreeMsg(900)])
    assert not answers_of(step(serving))
    uid = serving.submit([9, 9], max_tokens=1)
    replies = [reply for _ in range(3) for reply in step(serving)]
    assert [reply.uid for reply in replies if isinstance(reply, TokenReply)] == [uid]
    assert not answers_of(replies)
    while not (answered := answers_of(step(serving))):
        assert not serving.loop.has_work
    assert isinstance(answered[0], TreeReply)
    assert not serving.scheduler.is_asked


def test_a_short_question_does_not_wait_for_the_end_of_a_long_one(serving: Serving) -> None:
    path = serving.manager.prefix_cache.view.path(np.array([1, 2, 3, 4], np.int32))
    uid = serving.submit([1, 2, 3, 4, 5], max_tokens=200)
    step(serving)
    step(serving)
    serving.inbox.send(
        [
            TreeMsg(900),
            NodeMsg(901, path.ids[-1], tail_len=2),
            NodeMsg(902, 10**9),
            PathMsg(903, np.array([1, 2, 3, 4, 5, 6], np.int32)),
        ]
    )
    answered: list[Any] = []
    while len(answered) < 4:
        answered += answers_of(step(serving))
    assert [reply.uid for reply in answered] == [903, 901, 902, 900]
    placed, used, gone, _ = answered
    assert isinstance(placed, PathReply)
    assert placed.answer.ids[: len(path.ids)] == path.ids
    assert placed.answer.matched_tokens == 5
    assert isinstance(used, NodeReply)
    assert used.answer is not None
    assert (used.answer.users, used.answer.states, used.answer.tail.tolist()) == ([uid], ["decode"], [3, 4])
    assert gone.answer is None


def test_a_user_that_ends_before_the_answer_is_not_named(serving: Serving) -> None:
    (root,) = serving.manager.prefix_cache.view.path(np.array([250], np.int32)).ids
    uids = [serving.submit([1, 2, 3, 4, 200 + i], max_tokens=30) for i in range(8)]
    step(serving)
    serving.inbox.send([NodeMsg(900, root)])
    assert not answers_of(step(serving))
    serving.inbox.send([AbortMsg(uids[0])])
    answered: list[Any] = []
    while not answered:
        answered = answers_of(step(serving))
    assert answered[0].answer.users == uids[1:]


def test_a_shutdown_does_not_wait_for_answers(serving: Serving) -> None:
    serving.inbox.send([TreeMsg(900), ShutdownMsg()])
    serving.loop.run()
    assert serving.scheduler.is_asked


def test_a_few_are_under_way_at_once_and_all_are_answered(serving: Serving) -> None:
    serving.inbox.send([TreeMsg(900 + i) for i in range(9)])
    answered: list[Any] = []
    while serving.scheduler.is_asked or not answered:
        answered += answers_of(step(serving))
        if answered:
            assert answered[0].uid == 900
    assert sorted(reply.uid for reply in answered) == [*range(900, 909)]
    assert [reply.uid for reply in answered[:4]] == [900, 901, 902, 903]


def test_what_nobody_waits_for_is_not_worked_on_any_more(serving: Serving) -> None:
    serving.inbox.send([TreeMsg(900 + i) for i in range(9)])
    step(serving)
    serving.inbox.send([AbortMsg(uid) for uid in (900, 901, 902, 903, 906, 907, 17)])
    answered: list[Any] = []
    while serving.scheduler.is_asked:
        answered += answers_of(step(serving))
    assert [reply.uid for reply in answered] == [904, 905, 908]


def test_what_was_purged_while_a_question_was_open_is_not_told(serving: Serving) -> None:
    serving.inbox.send([TreeMsg(900 + i, head_len=8) for i in range(6)])
    for _ in range(12):
        assert not answers_of(step(serving))
    serving.inbox.send([PurgeMsg(1000, np.array([1, 2, 3, 4, 107], np.int32))])
    answered = answers_of(step(serving))
    assert [reply.uid for reply in answered] == [1000]
    while serving.scheduler.is_asked:
        answered += answers_of(step(serving))
    for reply in answered[1:]:
        assert isinstance(reply, TreeReply)
        assert reply.answer is not None
        heads = reply.answer.heads.tolist()
        assert 107 not in heads
        assert 108 in heads
    assert sorted(reply.uid for reply in answered) == [*range(900, 906), 1000]

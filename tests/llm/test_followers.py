"""Why the ranks cannot go on, as rank 0 hears it."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from minisgl.llm.followers import Followers, RankDied
from minisgl.llm.rank_children import RankChild
from minisgl.message.plans import RankFailed


def followers(codes: list[int | None], *news: RankFailed) -> Followers:
    """Ranks 1 and up with these exit codes, which have said so much."""
    made: Any = Followers.__new__(Followers)
    processes = [SimpleNamespace(poll=lambda code=code: code, kill=lambda: None) for code in codes]
    made._followers = [RankChild(rank, process, None) for rank, process in enumerate(processes, 1)]  # type: ignore[arg-type]
    made._inbox = SimpleNamespace(receive=lambda timeout: list(news))
    made._failure, made._is_closing, made._group = None, False, None
    made._failed, made._noticed = threading.Event(), threading.Event()
    made._news()
    return made  # type: ignore[no-any-return]


def test_a_rank_that_was_killed_is_named_not_one_that_missed_it() -> None:
    with pytest.raises(RankDied, match="rank 1 ended: killed by SIGKILL"):
        followers([-9, None], RankFailed(2, "RuntimeError: connection reset by peer")).check()


def test_the_last_word_of_a_rank_is_worth_more_than_its_exit_code() -> None:
    with pytest.raises(ValueError, match="no room"):
        followers([None, 1], RankFailed(2, "no room", by_user=True)).check()
    with pytest.raises(RankDied, match="rank 2 ended: exit code 1"):
        followers([None, 1]).check()


def test_nothing_is_wrong_while_all_run() -> None:
    followers([None, None]).check()

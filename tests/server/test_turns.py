"""However many ask at once, an engine is asked little."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import httpx
import pytest
from support.asgi import Api

from minisgl.core.picture import NodeUse
from minisgl.server.errors import ApiError
from minisgl.server.turns import MAX_OPEN, Together, Turns
from minisgl.utils.arrays import NO_IDS


class Asked:
    """Answers when it is told to. questions: in the order in which they were put."""

    def __init__(self) -> None:
        self.questions: list[Any] = []
        self.may_answer = asyncio.Event()

    def about(self, question: Any) -> Callable[[], Coroutine[Any, Any, str]]:
        async def answer() -> str:
            self.questions.append(question)
            await self.may_answer.wait()
            return f"of {question}"

        return answer


def no_rest(seconds: float) -> float:
    return 0.0


def in_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """The test, run in an event loop of its own."""

    @wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


async def a_moment() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@in_loop
async def test_equal_questions_are_asked_once_while_one_is_open_and_again_later() -> None:
    turns, asked = Turns(4, no_rest), Asked()
    tasks = [asyncio.create_task(turns.ask("a", asked.about("a"))) for _ in range(50)]
    await a_moment()
    asked.may_answer.set()
    assert await asyncio.gather(*tasks) == ["of a"] * 50
    assert asked.questions == ["a"]
    await turns.ask("a", asked.about("a"))
    assert asked.questions == ["a", "a"]


@in_loop
async def test_only_so_many_are_asked_at_once_and_too_many_are_refused() -> None:
    turns, asked = Turns(2, no_rest), Asked()
    tasks = [asyncio.create_task(turns.ask(i, asked.about(i))) for i in range(MAX_OPEN)]
    await a_moment()
    assert asked.questions == [0, 1]
    with pytest.raises(ApiError, match="are open") as refused:
        await turns.ask("one more", asked.about("one more"))
    assert (refused.value.status, refused.value.headers) == (429, {"Retry-After": "1"})
    asked.may_answer.set()
    assert await asyncio.gather(*tasks) == [f"of {i}" for i in range(MAX_OPEN)]


@in_loop
async def test_after_an_answer_its_place_rests() -> None:
    turns, asked, began = Turns(1, lambda seconds: 0.1), Asked(), time.monotonic()
    asked.may_answer.set()
    await turns.ask("a", asked.about("a"))
    await turns.ask("b", asked.about("b"))
    assert time.monotonic() - began >= 0.1


@in_loop
async def test_who_leaves_ends_nothing_for_the_others_nor_for_a_later_question() -> None:
    turns, asked = Turns(1, no_rest), Asked()
    leaves, stays = (asyncio.create_task(turns.ask("a", asked.about("a"))) for _ in range(2))
    await a_moment()
    leaves.cancel()
    await a_moment()
    asked.may_answer.set()
    assert await stays == "of a"
    assert await turns.ask("b", asked.about("b")) == "of b"


@in_loop
async def test_a_failure_is_everybodys_who_asked_and_takes_no_place() -> None:
    async def fail() -> str:
        raise ValueError("no")

    turns, asked = Turns(1, no_rest), Asked()
    results = await asyncio.gather(*(turns.ask("a", fail) for _ in range(3)), return_exceptions=True)
    assert [str(result) for result in results] == ["no"] * 3
    asked.may_answer.set()
    assert await turns.ask("a", asked.about("a")) == "of a"


@in_loop
async def test_who_comes_while_others_wait_is_answered_with_them() -> None:
    groups: list[set[int]] = []

    async def answer(keys: set[int]) -> dict[int, int]:
        groups.append(set(keys))
        await asyncio.sleep(0)
        return {key: 10 * key for key in keys}

    together = Together[int](Turns(1, no_rest))
    assert await asyncio.gather(*(together.ask(key, answer) for key in (3, 1, 3, 2))) == [30, 10, 30, 20]
    assert groups == [{1, 2, 3}]
    answers = await asyncio.gather(*(together.ask(key, answer) for key in range(MAX_OPEN + 1)), return_exceptions=True)
    assert answers[:-1] == [10 * key for key in range(MAX_OPEN)]
    assert isinstance(answers[-1], ApiError)


@in_loop
async def test_a_flood_of_looks_asks_the_engine_a_handful_of_questions() -> None:
    api = Api()
    api.link.node_use = NodeUse(9, 4, 1, 5, [], [], NO_IDS, [])
    transport = httpx.ASGITransport(api.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        paths = ["/inspect/activity?since=7", "/inspect/activity?since=5", "/inspect/tree/7"]
        answers = await asyncio.gather(*(client.get(path) for path in paths * 100))
    assert {answer.status_code for answer in answers} == {200}
    assert len(api.link.asked_since) <= 2
    assert api.link.asked_since[0] == 5
    assert len(api.link.asked) <= 10


@in_loop
async def test_with_the_last_who_waits_the_question_ends_and_another_is_put_anew() -> None:
    ended: list[str] = []
    asked = Asked()

    async def answer() -> str:
        try:
            return await asked.about("a")()
        finally:
            ended.append("a")

    turns = Turns(1, no_rest)
    tasks = [asyncio.create_task(turns.ask("a", answer)) for _ in range(2)]
    await a_moment()
    tasks[0].cancel()
    await a_moment()
    assert ended == []
    tasks[1].cancel()
    again = asyncio.create_task(turns.ask("a", asked.about("a")))
    await a_moment()
    assert (ended, asked.questions) == (["a"], ["a", "a"])
    asked.may_answer.set()
    assert await again == "of a"

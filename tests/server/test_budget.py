"""Bytes that several share are held in the order of arrival, and nobody waits for ever."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from minisgl.server.budget import Budget
from minisgl.server.errors import ApiError

PATIENCE_S = 60.0


def test_who_does_not_fit_waits_for_those_before() -> None:
    async def test() -> None:
        budget, order = Budget(100, "bodies", PATIENCE_S), list[str]()

        async def hold(name: str, num: int, until: asyncio.Event) -> None:
            async with budget.hold(num):
                order.append(name)
                await until.wait()

        ends = [asyncio.Event() for _ in range(4)]
        tasks = [asyncio.create_task(hold(f"{i}", num, ends[i])) for i, num in enumerate((60, 40, 90, 10))]
        await asyncio.sleep(0)
        assert (order, budget.held) == (["0", "1"], 100)
        ends[1].set()
        await tasks[1]
        await asyncio.sleep(0)
        assert order == ["0", "1"], "the small one does not overtake"
        ends[0].set()
        await tasks[0]
        await asyncio.sleep(0)
        assert (order, budget.held) == (["0", "1", "2", "3"], 100)
        ends[2].set(), ends[3].set()
        await asyncio.gather(*tasks)
        assert budget.held == 0

    asyncio.run(test())


def test_what_is_larger_than_all_of_it_is_held_alone() -> None:
    async def test() -> None:
        budget = Budget(100, "bodies", PATIENCE_S)
        async with budget.hold(1000):
            assert not budget.has_room(1)
        assert budget.held == 0

    asyncio.run(test())


def test_who_waits_too_long_gets_a_503_with_a_time_to_come_again() -> None:
    async def test() -> None:
        budget = Budget(100, "large bodies", 0.01)
        async with budget.hold(100):
            with pytest.raises(ApiError, match="large bodies hold 100 bytes") as error:
                await AsyncExitStack().enter_async_context(budget.hold(1))
        assert (error.value.status, error.value.headers["Retry-After"]) == (503, "1")
        assert budget.held == 0

    asyncio.run(test())


@pytest.mark.parametrize("is_granted", [False, True])
def test_who_leaves_while_waiting_holds_nothing(is_granted: bool) -> None:
    async def test() -> None:
        budget = Budget(100, "bodies", PATIENCE_S)
        budget.add(100)
        waiting = asyncio.create_task(AsyncExitStack().enter_async_context(budget.hold(50)))
        behind = asyncio.create_task(AsyncExitStack().enter_async_context(budget.hold(60)))
        await asyncio.sleep(0)
        if is_granted:
            budget.remove(100)
        waiting.cancel()
        await asyncio.wait([waiting])
        if not is_granted:
            budget.remove(100)
        await behind
        assert budget.held == 60

    asyncio.run(test())

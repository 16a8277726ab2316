from __future__ import annotations

import asyncio

import pytest

from minisgl.server.running import Cause, Cutoff, Running


async def wait_in(cutoff: Cutoff) -> None:
    async with cutoff:
        await asyncio.sleep(60)


@pytest.mark.parametrize("cause", ["disconnect", "abort"])
def test_a_cut_ends_the_block_and_says_why(cause: Cause) -> None:
    async def test() -> None:
        cutoff = Cutoff(None)
        task = asyncio.create_task(wait_in(cutoff))
        await asyncio.sleep(0)
        cutoff.cut(cause)
        cutoff.cut("timeout")  # the first cause stays
        with pytest.raises(TimeoutError):
            await task
        assert cutoff.cause == cause

    asyncio.run(test())


def test_time_ends_the_block_too() -> None:
    async def test() -> None:
        cutoff = Cutoff(0.01)
        with pytest.raises(TimeoutError):
            await wait_in(cutoff)
        cutoff.cut("abort")  # too late
        assert cutoff.cause == "timeout"

    asyncio.run(test())


@pytest.mark.parametrize("seconds", [None, 60])
def test_a_block_that_ended_in_time_has_no_cause(seconds: float | None) -> None:
    async def test() -> None:
        cutoff = Cutoff(seconds)
        async with cutoff:
            pass
        cutoff.cut("disconnect")  # while the last of it is written
        assert cutoff.cause is None

    asyncio.run(test())


def test_a_block_that_failed_is_not_cut_afterwards() -> None:
    async def test() -> None:
        cutoff = Cutoff(None)
        with pytest.raises(ZeroDivisionError):
            async with cutoff:
                raise ZeroDivisionError
        cutoff.cut("abort")
        assert cutoff.cause is None

    asyncio.run(test())


class Noted(Cutoff):
    """Without a block."""

    def cut(self, cause: Cause) -> None:
        self.cause = cause


def test_a_name_may_be_that_of_several_requests_and_is_gone_with_them() -> None:
    async def test() -> None:
        running, first, second, other = Running(), Noted(None), Noted(None), Noted(None)
        with running.enter(["other"], other):
            with running.enter(["a", "a", "b"], first), running.enter(["a"], second):
                assert (running.abort("nobody"), running.abort("a")) == (0, 2)
                assert (first.cause, second.cause, other.cause) == ("abort", "abort", None)
                assert running.abort_all() == 3
            assert (running.abort("a"), running.abort("b"), running.abort_all()) == (0, 0, 1)

    asyncio.run(test())

"""How often the oldest was overtaken, against each request's own count."""

from __future__ import annotations

import random

import pytest
from support.waiting import make_waiting

from minisgl.scheduler.ageing import Ageing
from minisgl.scheduler.waiting import Waiting


@pytest.mark.parametrize("max_overtakes", [1, 2, 7])
def test_the_oldest_is_next_from_the_overtake_on_that_is_its_last(max_overtakes: int) -> None:
    rng, ageing = random.Random(max_overtakes), Ageing(max_overtakes)
    waiting: list[Waiting] = []
    overtakes: dict[Waiting, int] = {}
    for number in range(3000):
        waiting.append(make_waiting(number, length=1))
        overtakes[waiting[-1]] = 0
        ageing.add(waiting[-1])
        while waiting and rng.random() < 0.52:
            aged = ageing.aged
            assert aged is (waiting[0] if overtakes[waiting[0]] >= max_overtakes else None)
            each, admitted = aged or rng.choice(waiting), rng.random() < 0.6
            for other in waiting:
                overtakes[other] += admitted and other.number < each.number
            waiting.remove(each)
            ageing.remove(each, admitted)
    assert max(overtakes.values()) == max_overtakes


def test_an_empty_queue_has_nobody_aged() -> None:
    assert Ageing(0).aged is None

"""A run of sorted chunks behaves as a sorted list does."""

from __future__ import annotations

import random

import pytest

from minisgl.scheduler import sorted_run
from minisgl.scheduler.sorted_run import SortedRun


@pytest.mark.parametrize("max_chunk", [4, 6, 1024])
def test_random_additions_and_removals_are_those_of_a_sorted_list(
    max_chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sorted_run, "MAX_CHUNK", max_chunk)
    rng, run, wanted = random.Random(max_chunk), SortedRun[int](), list[int]()
    for _ in range(2000):
        if wanted and rng.random() < 0.45:
            item = wanted.pop(rng.randrange(len(wanted)))
            run.remove(item)
        else:
            item = rng.randrange(1_000_000)
            if item not in wanted:
                run.add(item)
                wanted.append(item)
                wanted.sort()
        if rng.random() < 0.02:
            count = rng.randint(0, 12)
            head = run.take_head(count)
            assert head == wanted[:count]
            run.put_head(head)
        assert len(run) == len(wanted)
        if wanted:
            at = rng.randrange(len(wanted))
            assert (run[0], run[at]) == (wanted[0], wanted[at])
    assert list(run) == wanted


def test_an_index_past_the_end_is_an_error() -> None:
    run = SortedRun[int]()
    run.add(3)
    with pytest.raises(IndexError):
        run[1]


def test_what_is_not_there_cannot_be_removed() -> None:
    run = SortedRun[int]()
    run.add(3)
    with pytest.raises(AssertionError, match="2 is not there"):
        run.remove(2)

from __future__ import annotations

import pytest
import torch

from minisgl.engine import threads

pytestmark = pytest.mark.usefixtures("threads_as_before")


@pytest.mark.parametrize(("given", "cores", "expected"), [(4, 2, 2), (1, 2, 1), (2, 2, 2)])
def test_there_are_no_more_threads_than_cores(
    given: int, cores: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(threads, "physical_cores", lambda: cores)
    torch.set_num_threads(given)
    threads.place_threads()
    assert torch.get_num_threads() == expected


def test_a_number_that_the_user_has_set_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    monkeypatch.setattr(threads, "physical_cores", lambda: 2)
    torch.set_num_threads(4)
    threads.place_threads()
    assert torch.get_num_threads() == 4


@pytest.mark.parametrize(("rank", "expected"), [(0, {0, 1, 2}), (1, {4, 5}), (2, {0, 1, 2})])
def test_every_rank_computes_on_a_memory_node_of_its_own(
    rank: int, expected: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    placed: list[set[int]] = []
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(threads, "memory_nodes", lambda: (frozenset({0, 1, 2}), frozenset({4, 5})))
    monkeypatch.setattr(threads.os, "sched_setaffinity", lambda pid, cpus: placed.append(set(cpus)))
    threads.place_threads(rank, num_ranks=3)
    assert placed == [expected]


@pytest.mark.parametrize(("nodes", "expected"), [(({0, 1}, {2, 3}), [{0, 1}]), (({0}, {1}, {2}, {3}), [])])
def test_a_process_alone_keeps_to_a_memory_node_that_has_half_of_the_cores(
    nodes: tuple[set[int], ...], expected: list[set[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    placed: list[set[int]] = []
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(threads, "memory_nodes", lambda: tuple(map(frozenset, nodes)))
    monkeypatch.setattr(threads.os, "sched_setaffinity", lambda pid, cpus: placed.append(set(cpus)))
    threads.place_threads()
    assert placed == expected


def test_where_a_process_may_not_choose_its_cpus_it_computes_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int, cpus: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(threads, "memory_nodes", lambda: (frozenset({0, 1}), frozenset({4, 5})))
    monkeypatch.setattr(threads.os, "sched_setaffinity", refuse)
    threads.place_threads()
    assert torch.get_num_threads() >= 1


def test_threads_stay_anywhere_where_there_is_one_node_or_the_user_says_how_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def place(pid: int, cpus: object) -> None:
        raise AssertionError("moved")

    monkeypatch.setattr(threads.os, "sched_setaffinity", place)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(threads, "memory_nodes", lambda: (frozenset({0, 1}),))
    threads.place_threads()
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setattr(threads, "memory_nodes", lambda: (frozenset({0}), frozenset({1})))
    threads.place_threads()

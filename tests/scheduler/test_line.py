"""Whose turn it is, and who is expected: each policy by a small example, the rest against a recount."""

from __future__ import annotations

import random

import pytest
from support.waiting import make_waiting

from minisgl.kvcache.types import Namespace, Watch
from minisgl.scheduler.line import Line
from minisgl.scheduler.ordering import POLICIES
from minisgl.scheduler.waiting import Waiting

EVERY_POLICY = pytest.mark.parametrize("policy", POLICIES.names)


class Marks(dict[Watch, int | None]):
    """What a cache knows of the look-ahead, each with its order. Marking one as it was is a mistake."""

    def __call__(self, watch: Watch, expected: bool, order: int | None) -> None:
        assert (order if expected else "") != self.get(watch, ""), "marked as it was"
        if expected:
            self[watch] = order
        else:
            del self[watch]

    @property
    def in_order(self) -> list[Watch]:
        """Those that are expected, the soonest first."""
        return sorted(self, key=lambda watch: self[watch] or 0)


def make_line(policy: str, waiting: list[Waiting], lookahead: int = 0) -> Line:
    line = Line(POLICIES[policy](), Marks(), lookahead)
    for each in waiting:
        line.add(each)
    return line


def served(line: Line) -> list[int]:
    numbers = []
    while (first := line.first()) is not None:
        line.take_turn(first)
        numbers.append(first.number)
    return numbers


def test_first_come_is_first_served() -> None:
    assert served(make_line("fcfs", [make_waiting(n, cached_len=n) for n in range(4)])) == [0, 1, 2, 3]


def test_lpm_takes_who_finds_most_cached_and_of_equals_the_oldest() -> None:
    lens = [0, 32, 16, 32, 0]
    assert served(make_line("lpm", [make_waiting(n, cached_len=c) for n, c in enumerate(lens)])) == [1, 3, 2, 0, 4]


def test_srp_takes_who_has_least_to_compute() -> None:
    sizes = [(100, 0), (90, 0), (300, 250), (90, 0)]
    waiting = [make_waiting(n, length, cached_len) for n, (length, cached_len) in enumerate(sizes)]
    assert served(make_line("srp", waiting)) == [2, 1, 3, 0]


def test_priority_takes_the_largest_number_whoever_asks() -> None:
    asked = [(0, "a"), (5, "b"), (0, "b"), (5, "a"), (-1, "a")]
    waiting = [make_waiting(n, priority=priority, salt=salt) for n, (priority, salt) in enumerate(asked)]
    assert served(make_line("priority", waiting)) == [1, 3, 0, 2, 4]


@EVERY_POLICY
def test_who_gave_up_its_pages_is_next_and_of_several_the_oldest(policy: str) -> None:
    line = make_line(policy, [make_waiting(n, cached_len=64, priority=9, salt="a") for n in range(10, 13)])
    line.add(make_waiting(8, salt="b", returned=True))
    line.add(make_waiting(7, salt="c", returned=True))
    line.add(make_waiting(9, cached_len=64, priority=9, salt="a", returned=True))
    line.add(make_waiting(6, salt="a", returned=True))  # the policy alone would take 9 first
    assert served(line) == [6, 7, 8, 9, 10, 11, 12]


@EVERY_POLICY
def test_who_gives_up_its_pages_again_finds_its_slot_free(policy: str) -> None:
    """Found by the random schedules: it had left its slot to an older one that waited still."""
    waiting = [make_waiting(1, returned=True), make_waiting(2, cached_len=64, priority=9, returned=True)]
    line = make_line(policy, waiting)
    gone = line.first()
    assert gone is not None
    line.take_turn(gone)
    line.add(make_waiting(gone.number, returned=True))
    line.check_integrity()


def test_a_request_moves_when_more_of_it_is_cached() -> None:
    waiting = [make_waiting(n) for n in range(3)]
    line = make_line("lpm", waiting)
    assert waiting[2].watch is not None
    waiting[2].watch.cached_len = 16
    line.rekey(waiting[2])
    assert served(line) == [2, 0, 1]


@pytest.mark.parametrize("policy", ["lpm", "srp", "dfs-weight"])
def test_each_arrival_is_one_turn_of_its_namespace_whatever_is_cached(policy: str) -> None:
    """b's requests run third and fifth, and in the same order, whether a has everything cached or nothing."""
    salts, cached = "aabab", [0, 0, 16, 0, 32]
    orders = []
    for of_a in (0, 96):
        waiting = [make_waiting(n, cached_len=of_a if s == "a" else cached[n], salt=s) for n, s in enumerate(salts)]
        orders.append([salts[n] + str(n) if salts[n] == "b" else "a" for n in served(make_line(policy, waiting))])
    assert orders[0] == orders[1]
    assert [each[0] for each in orders[0]] == list("aabab")


def test_who_is_overtaken_gets_the_slot_of_the_one_that_went() -> None:
    """So an abort takes nobody else's turn, and a namespace has as many turns as requests."""
    waiting = [make_waiting(0, salt="a"), make_waiting(1, salt="b"), make_waiting(2, cached_len=16, salt="a")]
    line = make_line("lpm", waiting)
    first = line.first()
    assert first is waiting[2]
    line.take_turn(first)
    assert served(line) == [1, 0]


def test_the_next_requests_in_order_are_expected() -> None:
    marks = Marks()
    line = Line(POLICIES["lpm"](), marks, 2)
    waiting = [make_waiting(n, cached_len=c) for n, c in enumerate([0, 48, 16, 32])]
    for each in waiting:
        line.add(each)
    assert marks.in_order == [waiting[1].watch, waiting[3].watch]
    line.take_turn(waiting[1])
    assert marks.in_order == [waiting[3].watch, waiting[2].watch]


def test_one_that_overtakes_another_is_expected_before_it() -> None:
    marks = Marks()
    line = Line(POLICIES["srp"](), marks, 8)
    first, second = waiting = [make_waiting(n, length=n) for n in (50, 100)]
    for each in waiting:
        line.add(each)
    assert marks.in_order == [first.watch, second.watch]
    assert second.watch is not None
    second.watch.cached_len = 80
    line.rekey(second)
    assert marks.in_order == [second.watch, first.watch]


@EVERY_POLICY
@pytest.mark.parametrize("lookahead", [0, 1, 7, 1000])
def test_exactly_the_next_ones_are_expected_whatever_happens(policy: str, lookahead: int) -> None:
    rng, marks = random.Random(lookahead), Marks()
    line = Line(POLICIES[policy](), marks, lookahead)
    waiting: list[Waiting] = []
    for number in range(400):
        for _ in range(rng.choice([0, 1, 1, 2])):
            what = rng.random()
            if what < 0.3 and waiting:
                line.remove(waiting.pop(rng.randrange(len(waiting))))
            elif what < 0.6 and waiting:
                first = line.first()
                assert first is not None
                line.take_turn(first)
                waiting.remove(first)
            elif what < 0.8 and waiting:
                each = rng.choice(waiting)
                assert each.watch is not None
                each.watch.cached_len = rng.randrange(0, 96, 16)
                line.rekey(each)
        priority, salt = rng.randrange(3), rng.choice("abc")
        waiting.append(make_waiting(number, 100, 0, priority, salt, returned=rng.random() < 0.05))
        line.add(waiting[-1])
        line.check_integrity()
        assert len(marks) == min(lookahead, len(line))
        assert all(each.expected == (each.watch in marks) for each in waiting)
        for salt in "abc" if not POLICIES[policy].across_namespaces else [""]:
            order = [
                each for each in waiting if each.expected and (not salt or each.request.namespace == Namespace(salt))
            ]
            order.sort(key=lambda each: each.place[:3])
            assert [watch for watch in marks.in_order if watch in {each.watch for each in order}] == [
                each.watch for each in order
            ]

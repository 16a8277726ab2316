"""Which waiting request of a namespace is next: the policies, and the order that each of them keeps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

from minisgl.kvcache.types import Watch
from minisgl.scheduler.ranking import UNRANKED, rank_depth_first
from minisgl.scheduler.sorted_run import SortedRun
from minisgl.scheduler.waiting import NOWHERE, ORDINARY, Place, Waiting
from minisgl.utils.registry import Registry

Expect = Callable[[Watch, bool, int | None], None]
_KEYS = 1 << 62  # more than any policy's number


class Policy(ABC):
    """A number for each waiting request; the smallest is next, and of equal ones the oldest. Urgent ones come before.

    across_namespaces: whether all are compared with all; false where the number tells what is cached, for nobody's
    turn may depend on what others have cached. follows_cache: whether the number changes with what is cached.
    """

    across_namespaces: ClassVar[bool] = False
    follows_cache: ClassVar[bool] = False

    @abstractmethod
    def key(self, waiting: Waiting) -> int:
        """Looked up when a request arrives, comes back to the line, or has more or less cached than before."""

    def make_order(self, expect: Expect) -> Order:
        return Order(self, expect)


class Order:
    """Waiting requests in the policy's order. The first `quota` of them are expected to run soon, and marked as such.

    expect: marks or unmarks a request's place in the cache, and says there where it stands in this order. It is called
    for those alone that get in or out, or change places.
    """

    def __init__(self, policy: Policy, expect: Expect) -> None:
        self._policy = policy
        self._expect = expect
        self._places: SortedRun[Place] = SortedRun()
        self._quota = 0

    def __len__(self) -> int:
        return len(self._places)

    def first(self) -> Waiting:
        return self[0]

    def __getitem__(self, index: int) -> Waiting:
        waiting: Waiting = self._places[index][3]
        return waiting

    def add(self, waiting: Waiting) -> None:
        waiting.place = (waiting.urgency, self._key(waiting), waiting.number, waiting)
        self._places.add(waiting.place)
        if len(self) <= self._quota:  # it was removed only to change its place
            self._mark(waiting, True)
        elif waiting.place < self._places[self._quota]:
            self._mark(waiting, True)
            self._mark(self[self._quota], False)

    def remove(self, waiting: Waiting) -> None:
        was_expected = len(self) <= self._quota or waiting.place < self._places[self._quota]
        self._places.remove(waiting.place)
        waiting.place = NOWHERE
        if was_expected:
            self._mark(waiting, False)
            if len(self) >= self._quota:
                self._mark(self[self._quota - 1], True)

    def rekey(self, waiting: Waiting) -> None:
        """Its number may have changed."""
        if waiting.place[1] != self._key(waiting):
            self.remove(waiting)
            self.add(waiting)

    def widen(self) -> None:
        """One more is expected; there is one."""
        self._mark(self[self._quota], True)
        self._quota += 1

    def narrow(self) -> None:
        """One less is expected. It may have gone already."""
        self._quota -= 1
        if self._quota < len(self):
            self._mark(self[self._quota], False)

    def check_integrity(self, quota: int) -> None:
        """AssertionError if it is not in order, or if not exactly the first `quota` are marked."""
        places = list(self._places)
        assert places == sorted(places), f"out of order: {places}"
        assert [waiting.place for *_, waiting in places] == places, "somebody is elsewhere than it thinks"
        expected = [waiting.number for *_, waiting in places if waiting.expected]
        assert sorted(expected) == sorted(waiting.number for *_, waiting in places[:quota]), (
            f"{expected} are marked, and not the first {quota} of {places}"
        )

    def _key(self, waiting: Waiting) -> int:
        """Those that come before others are in order of age, so that their slots never change hands."""
        return self._policy.key(waiting) if waiting.urgency == ORDINARY else 0

    def _mark(self, waiting: Waiting, expected: bool) -> None:
        waiting.expected = expected
        if waiting.watch is not None:
            self._expect(waiting.watch, expected, _run_order(waiting.place) if expected else None)


def _run_order(place: Place) -> int:
    """The place as one number, which compares as places do: urgency, the policy's number, how many came before."""
    urgency, key, number, _ = place
    return (((urgency << 64) + key + _KEYS) << 62) + number + 1


POLICIES: Registry[type[Policy]] = Registry("scheduling policy")


@POLICIES.register("fcfs")
class FirstComeFirstServed(Policy):
    across_namespaces = True

    def key(self, waiting: Waiting) -> int:
        return 0


@POLICIES.register("lpm")
class LongestPrefixMatch(Policy):
    """Who finds most tokens cached."""

    follows_cache = True

    def key(self, waiting: Waiting) -> int:
        return -waiting.cached_len


@POLICIES.register("dfs-weight")
class DepthFirstWeight(Policy):
    """The tree's branches one after the other, those first for which most requests wait (ranking.py).

    Source: SGLang's policy of this name.
    """

    def key(self, waiting: Waiting) -> int:
        return waiting.rank

    def make_order(self, expect: Expect) -> Order:
        return RankedOrder(self, expect)


@POLICIES.register("priority")
class HighestPriority(Policy):
    """The client's number, larger ones first, whoever the client is."""

    across_namespaces = True

    def key(self, waiting: Waiting) -> int:
        return -waiting.request.priority


@POLICIES.register("srp")
class ShortestRemainingPrefill(Policy):
    """Who has fewest tokens to compute."""

    follows_cache = True

    def key(self, waiting: Waiting) -> int:
        return waiting.request.prefill_len - waiting.cached_len


class RankedOrder(Order):
    """The first `RANKED` requests are ranked together, and again once an eighth of them has changed.

    Who comes later is behind them until then, in order of arrival.
    """

    RANKED = 256

    def __init__(self, policy: Policy, expect: Expect) -> None:
        super().__init__(policy, expect)
        self._num_changes = 0

    def first(self) -> Waiting:
        if self._num_changes >= max(1, min(len(self), self.RANKED) // 8):
            self._rank()
        return super().first()

    def add(self, waiting: Waiting) -> None:
        waiting.rank = UNRANKED
        super().add(waiting)
        self._num_changes += len(self) <= self.RANKED

    def remove(self, waiting: Waiting) -> None:
        super().remove(waiting)
        self._num_changes += 1

    def _rank(self) -> None:
        head: list[Waiting] = [place[3] for place in self._places.take_head(self.RANKED)]
        before = {waiting: waiting.place for waiting in head[: self._quota]}
        new = sorted((waiting for waiting in head if waiting.urgency == ORDINARY), key=lambda waiting: waiting.number)
        rank_depth_first(new)
        for waiting in new:
            waiting.place = (ORDINARY, waiting.rank, waiting.number, waiting)
        places = sorted(waiting.place for waiting in head)
        self._places.put_head(places)
        self._num_changes = 0
        self._mark_changes(before, {place[3]: place for place in places[: self._quota]})

    def _mark_changes(self, before: dict[Waiting, Place], now: dict[Waiting, Place]) -> None:
        for waiting in before:
            if waiting not in now:
                self._mark(waiting, False)
        for waiting, place in now.items():
            if before.get(waiting) != place:
                self._mark(waiting, True)

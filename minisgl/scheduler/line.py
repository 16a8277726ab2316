"""Whose turn it is: a slot for each arrival, and within a namespace the policy's choice."""

from __future__ import annotations

from collections import Counter

from minisgl.kvcache.types import Namespace
from minisgl.scheduler.ordering import Expect, Order, Policy
from minisgl.scheduler.sorted_run import SortedRun
from minisgl.scheduler.waiting import Waiting


class Line:
    """Everyone who waits and could be next. Each holds a slot, at first its number.

    The first slot decides the namespace, the policy which of its requests goes; that one takes the first slot and
    leaves its own to the one that stood there. So how often a namespace is served depends on its arrivals alone, and
    what it has cached changes nothing for others. Where a policy compares across namespaces there is one order for all.

    lookahead: those who would go next, this many, are marked by `expect`. They are the first in each namespace's order,
    as many as it has of the first `lookahead` slots; kept up to date change by change.
    """

    def __init__(self, policy: Policy, expect: Expect, lookahead: int) -> None:
        self._policy = policy
        self._expect = expect
        self._lookahead = lookahead
        self._slots: SortedRun[int] = SortedRun()
        self._holders: dict[int, Waiting] = {}
        self._orders: dict[Namespace | None, Order] = {}

    def __len__(self) -> int:
        return len(self._slots)

    def first(self) -> Waiting | None:
        """Whose turn it is."""
        return self._order(self._holders[self._slots[0]]).first() if self._slots else None

    def add(self, waiting: Waiting) -> None:
        order = self._order(waiting)
        order.add(waiting)
        self._holders[waiting.slot] = waiting
        self._slots.add(waiting.slot)
        if len(self) <= self._lookahead:
            order.widen()
        elif waiting.slot < self._slots[self._lookahead]:
            self._move_quota(order, self._order_at(self._lookahead))

    def remove(self, waiting: Waiting) -> None:
        """It goes with its own slot."""
        order, is_near = self._order(waiting), self._is_near(waiting.slot)
        order.remove(waiting)
        self._slots.remove(waiting.slot)
        del self._holders[waiting.slot]
        if is_near and len(self) >= self._lookahead:
            self._move_quota(self._order_at(self._lookahead - 1), order)
        elif is_near:
            order.narrow()
        if not len(order):
            del self._orders[self._group(waiting)]

    def take_turn(self, waiting: Waiting) -> None:
        """It goes with the first slot, if its namespace is the one whose turn it is."""
        first = self._holders[self._slots[0]]
        if self._group(first) == self._group(waiting):
            first.slot, waiting.slot = waiting.slot, first.slot
            self._holders[first.slot], self._holders[waiting.slot] = first, waiting
        self.remove(waiting)

    def rekey(self, waiting: Waiting) -> None:
        """What is cached of it has changed."""
        self._order(waiting).rekey(waiting)

    def check_integrity(self) -> None:
        """AssertionError if somebody has no slot, or if not exactly the next ones are expected."""
        slots = list(self._slots)
        assert sorted(self._holders) == slots, f"slots {slots} are held as {sorted(self._holders)}"
        groups = [self._group(self._holders[slot]) for slot in slots]
        sizes = {group: len(order) for group, order in self._orders.items()}
        assert sizes == Counter(groups), f"orders have {sizes}, slots {Counter(groups)}"
        near = Counter(groups[: self._lookahead])
        for group, order in self._orders.items():
            order.check_integrity(near[group])

    def _is_near(self, slot: int) -> bool:
        return len(self) <= self._lookahead or slot < self._slots[self._lookahead]

    @staticmethod
    def _move_quota(gains: Order, loses: Order) -> None:
        if gains is not loses:
            gains.widen()
            loses.narrow()

    def _order_at(self, index: int) -> Order:
        return self._order(self._holders[self._slots[index]])

    def _order(self, waiting: Waiting) -> Order:
        group = self._group(waiting)
        order = self._orders.get(group)
        if order is None:
            order = self._orders[group] = self._policy.make_order(self._expect)
        return order

    def _group(self, waiting: Waiting) -> Namespace | None:
        return None if self._policy.across_namespaces else waiting.request.namespace

"""One request in the queue, as the queue sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minisgl.kvcache.types import Watch

if TYPE_CHECKING:
    from minisgl.scheduler.request import Request

RETURNED, AGED, ORDINARY = 0, 1, 2
SLOTS_OF_EACH = 1 << 60  # of each urgency: more than requests will ever arrive
Place = tuple[int, int, int, Any]
NOWHERE: Place = (0, 0, 0, None)


class Waiting:
    """A request that waits.

    number: how many requests had arrived before it did.
    urgency: RETURNED was running and gave its pages back, AGED was overtaken often enough; these come before others.
    slot: its place in the line that decides whose turn it is (line.py): by urgency and number, until it changes places.
    place: where it is in its namespace's order, (urgency, the policy's key, number, self); else NOWHERE, not a cycle.
    watch: how much of it is cached; None for one that is computed in full whatever is cached.
    expected: whether it is among the next ones, whose prefixes go last from the cache.
    rank: what the dfs-weight policy has given it.
    leader: the running request that it waits for, which computes the tokens up to leader_len that both begin with.
    blocked_epoch: the cache manager's epoch in which it did not fit.
    """

    __slots__ = (
        "blocked_epoch", "expected", "leader", "leader_len", "number", "place", "rank", "request",
        "slot", "urgency", "watch",
    )  # fmt: skip

    def __init__(self, request: Request, watch: Watch | None, returned: bool) -> None:
        self.request = request
        self.number = request.arrival
        self.watch = watch
        self.place = NOWHERE
        self.set_urgency(RETURNED if returned else ORDINARY)
        self.expected = False
        self.rank = 0
        self.leader: Request | None = None
        self.leader_len = 0
        self.blocked_epoch = -1

    def set_urgency(self, urgency: int) -> None:
        """With it comes a slot. It must not be in the line meanwhile."""
        self.urgency = urgency
        self.slot = urgency * SLOTS_OF_EACH + self.number

    @property
    def cached_len(self) -> int:
        """Tokens that it would find in the cache."""
        return 0 if self.watch is None else self.watch.cached_len

    def __repr__(self) -> str:
        return f"waiting(uid={self.request.uid}, number={self.number}, slot={self.slot}, cached_len={self.cached_len})"

"""One request in the queue, as the queue sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minisgl.kvcache.base import Watch

if TYPE_CHECKING:
    from minisgl.scheduler.request import Request

BEFORE_ALL = -(1 << 62)


class Waiting:
    """A request that waits.

    number: how many requests had arrived before it did.
    slot: its place in the line that decides whose turn it is (line.py); its number until it changes places.
    place: where it is in its namespace's order, (the policy's key, number, self).
    watch: how much of it is cached; None for one that is computed in full whatever is cached.
    returned: it was running and gave its pages back, so it comes before all that have not run yet.
    expected: whether it is among the next ones, whose prefixes go last from the cache.
    rank: what the dfs-weight policy has given it.
    leader: the running request that it waits for, which computes the tokens up to leader_len that both begin with.
    blocked_epoch: the cache manager's epoch in which it did not fit.
    """

    __slots__ = (
        "blocked_epoch", "expected", "leader", "leader_len", "number", "place", "rank", "request", "returned", "slot",
        "watch",
    )  # fmt: skip

    def __init__(self, request: Request, watch: Watch | None, returned: bool) -> None:
        self.request = request
        self.number = request.arrival
        self.watch = watch
        self.returned = returned
        self.slot = self.number + (BEFORE_ALL if returned else 0)
        self.place: tuple[int, int, Waiting] = (0, 0, self)
        self.expected = False
        self.rank = 0
        self.leader: Request | None = None
        self.leader_len = 0
        self.blocked_epoch = -1

    @property
    def cached_len(self) -> int:
        """Tokens that it would find in the cache."""
        return 0 if self.watch is None else self.watch.cached_len

    def __repr__(self) -> str:
        return f"waiting(uid={self.request.uid}, number={self.number}, slot={self.slot}, cached_len={self.cached_len})"

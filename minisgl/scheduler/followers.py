"""Requests that wait for another to compute what they share. They are out of the line until then."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from minisgl.scheduler.joining import Leaders
from minisgl.scheduler.request import Request
from minisgl.scheduler.waiting import Waiting


class Followers:
    """Filed under their leaders, so that those who have no followers ready cost nothing."""

    def __init__(self, leaders: Leaders) -> None:
        self._leaders = leaders
        self._behind: dict[Request, list[tuple[int, int, Waiting]]] = {}  # heaps of (leader_len, slot, follower)
        self._ready: list[tuple[int, Waiting]] = []  # a heap by slot
        self._num_waiting = 0

    def __len__(self) -> int:
        return self._num_waiting

    def add(self, waiting: Waiting, leader: Request, leader_len: int) -> None:
        waiting.leader, waiting.leader_len = leader, leader_len
        heappush(self._behind.setdefault(leader, []), (leader_len, waiting.slot, waiting))
        self._num_waiting += 1

    def remove(self, waiting: Waiting) -> None:
        waiting.leader = None
        self._num_waiting -= 1

    def take_ready(self, limit: int) -> list[Waiting]:
        """Up to `limit` of those whose leader is done or gone, the first slots first; they follow nobody now."""
        for leader in list(self._behind):
            self._release(leader)
        taken: list[Waiting] = []
        while self._ready and len(taken) < limit:
            waiting = heappop(self._ready)[1]
            if waiting.leader is not None:
                self.remove(waiting)
                taken.append(waiting)
        return taken

    def check_integrity(self, waiting: Iterable[Waiting]) -> None:
        """AssertionError if one of `waiting`, all that wait, follows somebody and would never be found again."""
        filed = [follower for behind in self._behind.values() for *_, follower in behind]
        filed += [follower for _, follower in self._ready]
        following = {follower for follower in waiting if follower.leader is not None}
        assert following == {follower for follower in filed if follower.leader is not None}, "a follower is lost"
        assert len(following) == self._num_waiting, f"{len(following)} follow, {self._num_waiting} are counted"

    def _release(self, leader: Request) -> None:
        behind = self._behind[leader]
        while behind and not self._is_following(behind[0][2], leader):
            waiting = heappop(behind)[2]
            if waiting.leader is leader:
                heappush(self._ready, (waiting.slot, waiting))
        if not behind:
            del self._behind[leader]

    def _is_following(self, waiting: Waiting, leader: Request) -> bool:
        """Whether it still waits for `leader`, which computes the least that any of its followers wants."""
        return waiting.leader is leader and self._leaders.computes_for(waiting)

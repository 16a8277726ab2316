"""Who may start: the waiting requests, in the order of the policy."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice

from msgspec.structs import replace

from minisgl.core import Explanation
from minisgl.kvcache.types import BaseCacheHandle, Watch
from minisgl.scheduler.ageing import Ageing
from minisgl.scheduler.cache_manager import CacheManager
from minisgl.scheduler.followers import Followers
from minisgl.scheduler.joining import Leaders
from minisgl.scheduler.line import Line
from minisgl.scheduler.ordering import POLICIES
from minisgl.scheduler.request import Request
from minisgl.scheduler.reserve import Reserve
from minisgl.scheduler.waiting import AGED, ORDINARY, RETURNED, Waiting

# What one step may spend on a long queue, so that it takes as long as with a short one. What is left is done next.
MAX_ADVANCED = 32  # waiting requests that find more cached than before
MAX_REKEYED = 32  # that change places for it
MAX_PASSED = 128  # that are found to wait for a leader
MAX_REJOINED = 128  # that return to the line once their leader is done


class Admission:
    """Owns the queue. A request that does not fit now is not looked at again before something was given back.

    reserve: how much room a request is promised. policy: a name of POLICIES. max_overtakes: a request before which so
    many later ones were admitted is next, and until it can start nobody else does. lookahead: what so many requests
    that are next would hit goes last from the cache. Raises ValueError for an unknown policy.
    """

    def __init__(
        self,
        cache_manager: CacheManager,
        reserve: Reserve,
        policy: str,
        max_overtakes: int,
        lookahead: int,
    ) -> None:
        self._manager = cache_manager
        self._reserve = reserve
        self._cache = cache_manager.prefix_cache
        self._policy = POLICIES[policy]()
        self._line = Line(self._policy, self._cache.expect, lookahead)
        self._ageing = Ageing(max_overtakes)
        self._leaders = Leaders(cache_manager)
        self._followers = Followers(self._leaders)
        self._waiting: dict[int, Waiting] = {}
        self._watched: dict[Watch, Waiting] = {}
        self._changed: dict[Watch, None] = {}  # whose places may be wrong
        self._num_arrived = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def uids(self) -> list[int]:
        return list(self._waiting)

    @property
    def waiting(self) -> Collection[Waiting]:
        """Those that wait, as they came."""
        return self._waiting.values()

    def add(self, request: Request) -> None:
        request.arrival = self._num_arrived
        self._num_arrived += 1
        self._ageing.add(self._enter(request, returned=False))

    def add_first(self, request: Request) -> None:
        """One that was admitted before and has given up its pages: it is next, after those like it that are older.

        It goes on with all tokens that it has. Its second admission overtakes nobody.
        """
        self._enter(request, returned=True)

    def find(self, uid: int) -> Request | None:
        waiting = self._waiting.get(uid)
        return None if waiting is None else waiting.request

    def remove(self, uid: int) -> bool:
        """Whether it was waiting."""
        waiting = self._waiting.get(uid)
        if waiting is None:
            return False
        if waiting.leader is None:
            self._line.remove(waiting)
        else:
            self._followers.remove(waiting)
        self._leave(waiting, admitted=False)
        return True

    def admit(self) -> Iterator[Request]:
        """Start waiting requests one by one, until one does not fit.

        One whose prefix a running request is computing right now leaves the line until that is done.
        """
        self._catch_up()
        num_passed = 0
        while self._manager.num_free_rows and num_passed < MAX_PASSED and (waiting := self._next()) is not None:
            if self._is_held_up(waiting):
                return
            if self._follow(waiting):
                num_passed += 1
            elif self._start(waiting):
                yield waiting.request
            else:
                return

    def check_integrity(self) -> None:
        """AssertionError if one that waits is in two places or nowhere, or not exactly the next are expected."""
        self._line.check_integrity()
        self._followers.check_integrity(self._waiting.values())
        assert len(self._line) + len(self._followers) == len(self), (
            f"{len(self)} wait: {len(self._line)} in the line, {len(self._followers)} for their leaders"
        )

    def _catch_up(self) -> None:
        """Take in what has changed in the cache and among the running requests, as much as one step may."""
        changed = self._cache.advance_watches(MAX_ADVANCED)
        if self._policy.follows_cache:
            self._changed.update(dict.fromkeys(changed))
            for watch in list(islice(self._changed, MAX_REKEYED)):
                del self._changed[watch]
                self._rekey(self._watched[watch])
        self._leaders.prune()
        for waiting in self._followers.take_ready(MAX_REJOINED):
            self._line.add(waiting)

    def _rekey(self, waiting: Waiting) -> None:
        if waiting.leader is None:  # a follower gets its place when it comes back
            self._line.rekey(waiting)

    def _next(self) -> Waiting | None:
        """Who has run before; else who was overtaken often enough; else whose turn it is."""
        aged = self._ageing.aged
        if aged is not None and aged.urgency == ORDINARY:
            self._hurry(aged)
        first = self._line.first()
        is_following = aged is not None and aged.leader is not None
        return aged if is_following and not (first is not None and first.urgency == RETURNED) else first

    def _hurry(self, waiting: Waiting) -> None:
        """Move it to the front, so that it is next, and that what it would hit goes last from the cache."""
        if waiting.leader is None:
            self._line.remove(waiting)
            waiting.set_urgency(AGED)
            self._line.add(waiting)
        else:
            waiting.set_urgency(AGED)

    def _is_held_up(self, waiting: Waiting) -> bool:
        """Whether the next one cannot start now, whatever room there is, so that nobody does.

        An aged follower is the next one even while its leader is at it: it is overtaken no more.
        """
        if waiting.leader is not None:
            if self._leaders.computes_for(waiting):
                return True
            self._followers.remove(waiting)
            self._line.add(waiting)
        return waiting.blocked_epoch == self._manager.epoch

    def _follow(self, waiting: Waiting) -> bool:
        """Whether it waits, out of the line, for one that computes what it needs."""
        found = self._leaders.find(waiting) if waiting.watch is not None else None
        if found is not None:
            self._line.take_turn(waiting)
            self._followers.add(waiting, *found)
        return found is not None

    def _start(self, waiting: Waiting) -> bool:
        request = waiting.request
        handle = self._manager.match(request.wanted_ids, request.namespace)
        allocation = self._manager.admit(handle, self._reserve.kv_len(request), request.namespace, request.priority)
        if allocation is None:
            waiting.blocked_epoch = self._manager.epoch
            return False
        self._line.take_turn(waiting)
        self._leave(waiting, admitted=True)
        if self._manager.explains and request.num_admissions == 0:
            request.explanation = self._explain(waiting, handle)
        request.start(allocation)
        self._leaders.add(request)
        return True

    def _explain(self, waiting: Waiting, handle: BaseCacheHandle) -> Explanation:
        """handle: what was matched of it."""
        request = waiting.request
        if not request.reuses_prefix:
            return Explanation(not_looked_up=request.prompt_len)
        found = self._manager.explain(request.wanted_ids, request.namespace, handle)
        at_once = found.hit if waiting.watch is None else min(found.hit, waiting.watch.least_len)
        return found if at_once == found.hit else replace(found, hit=at_once, joined=found.hit - at_once)

    def _enter(self, request: Request, returned: bool) -> Waiting:
        watch = self._cache.watch(request.wanted_ids[:-1], request.namespace) if request.reuses_prefix else None
        waiting = self._waiting[request.uid] = Waiting(request, watch, returned)
        if watch is not None:
            self._watched[watch] = waiting
        self._line.add(waiting)
        return waiting

    def _leave(self, waiting: Waiting, admitted: bool) -> None:
        del self._waiting[waiting.request.uid]
        if waiting.urgency != RETURNED:
            self._ageing.remove(waiting, admitted)
        if waiting.watch is not None:
            del self._watched[waiting.watch]
            self._changed.pop(waiting.watch, None)
            self._cache.unwatch(waiting.watch)

"""How requests end, and what they give back then."""

from __future__ import annotations

from minisgl.message import FinishReason, Reply, TokenReply
from minisgl.scheduler.admission import Admission
from minisgl.scheduler.cache_manager import CacheManager
from minisgl.scheduler.counters import Counters
from minisgl.scheduler.planner import Planner
from minisgl.scheduler.recorder import Recorder
from minisgl.scheduler.request import Request, RequestState


class Endings:
    """Closes requests of the queue and of `admitted`, the scheduler's; what is to be told of it is put into `replies`.

    A request that is over leaves at once, or with the commit of its last launched batch.
    end_token_ids: those that end some request which is not over, and how many.
    """

    def __init__(
        self,
        manager: CacheManager,
        admission: Admission,
        admitted: dict[int, Request],
        planner: Planner,
        counters: Counters,
        recorder: Recorder,
        replies: list[Reply],
    ) -> None:
        self._manager = manager
        self._admission = admission
        self._admitted = admitted
        self._planner = planner
        self._counters = counters
        self._recorder = recorder
        self._replies = replies
        self.end_token_ids: dict[int, int] = {}

    def expect(self, request: Request) -> None:
        """A request that will be closed here, however it ends."""
        for token_id in request.end_token_ids:
            self.end_token_ids[token_id] = self.end_token_ids.get(token_id, 0) + 1

    def find(self, uid: int) -> Request | None:
        """It waits, runs, or is over but in flight."""
        return self._admission.find(uid) or self._admitted.get(uid)

    def refuse(self, uid: int, error: str) -> None:
        """A request that never enters the queue."""
        self._replies.append(TokenReply(uid, finish_reason="error", error=error))
        self._counters.ended("error")

    def abort(self, uid: int) -> None:
        """Whoever asked for it wants no more of it; nothing happens if it is over."""
        request = self.find(uid)
        if request is not None and not request.is_over:
            self.close(request, RequestState.ABORTED, request.reply((), "abort"))

    def finish_at(self, uid: int, num_tokens: int) -> None:
        """A stop string ended its text after so many tokens, as whoever asked for it found; later ones go unheeded."""
        request = self.find(uid)
        if request is None:
            return
        request.truncate(num_tokens)
        if not request.is_over:
            self.close(request, RequestState.FINISHED, None)

    def close(self, request: Request, state: RequestState, reply: TokenReply | None) -> None:
        """The request is over. reply: the last news of it, with the reason."""
        reason: FinishReason = (reply and reply.finish_reason) or "stop"
        request.close(state)
        self._forget_end_tokens(request)
        self._planner.changed()
        if state is RequestState.FINISHED and reason != "error":
            self._planner.finished(request)
        self._counters.ended(reason)
        self._recorder.ended(request.uid, is_aborted=state is RequestState.ABORTED)
        if reply is not None:
            self._replies.append(reply)
        if not self._admission.remove(request.uid) and not request.is_in_flight:
            self.release(request)

    def _forget_end_tokens(self, request: Request) -> None:
        """A token that ends nothing is one that many rows can take in at once."""
        for token_id in request.end_token_ids:
            self.end_token_ids[token_id] -= 1
            if not self.end_token_ids[token_id]:
                del self.end_token_ids[token_id]

    def release(self, request: Request) -> None:
        """Its pages go back; what can be trusted of them stays cached. No launched batch may read them."""
        del self._admitted[request.uid]
        assert request.allocation is not None
        known = min(request.committed_len, request.num_ids) if request.storable else 0
        ids = request.ids(known)
        self._counters.released(request, ids)
        self._manager.release(request.allocation, ids)

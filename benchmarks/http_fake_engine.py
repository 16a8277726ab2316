"""An engine process that computes nothing: it gives every stream a token 20 times a second, over the real protocol.

    python benchmarks/http_fake_engine.py FOLDER      # as RemoteEngine starts an engine process

It waits until all streams are there and then sends one frame a step with a token for each, as an engine's decode step
does; `groups` spreads them over so many frames between two steps. When each token was sent goes to a file.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from minisgl.message import (
    AbortMsg,
    EngineInfo,
    EngineReady,
    EngineStats,
    RequestMsg,
    ShutdownMsg,
    StatsMsg,
    StatsReply,
    TokenReply,
    UserMsg,
)
from minisgl.message.sockets import SocketInbox, SocketOutbox, finish_sending
from minisgl.message.wire import News, news_codec, request_codec
from minisgl.utils.model_store import resolve_model

FIRST_ID = 100  # a prompt is one token: this and the stream's number


@dataclass(frozen=True)
class Plan:
    """What every stream gets: num_tokens of `token_ids`, over and over, one each `period_s`."""

    num_streams: int
    num_tokens: int
    period_s: float
    groups: int
    token_ids: tuple[int, ...]
    times_file: str

    @classmethod
    def from_environ(cls) -> Plan:
        fields = json.loads(os.environ["FAKE_ENGINE_PLAN"])
        return cls(**{**fields, "token_ids": tuple(fields["token_ids"])})


class FakeEngine:
    """times: [streams, tokens] of time.monotonic, when each token was sent."""

    def __init__(self, plan: Plan, inbox: SocketInbox[RequestMsg], outbox: SocketOutbox[News]) -> None:
        self._plan = plan
        self._inbox = inbox
        self._outbox = outbox
        self._uids: dict[int, int] = {}  # by the stream's number
        self._is_told_to_end = False
        self._parent = os.getppid()
        self.times = np.zeros((plan.num_streams, plan.num_tokens))

    def run(self) -> None:
        self._outbox.send([EngineReady(describe())])
        while len(self._uids) < self._plan.num_streams and not self._is_over:
            self._take(timeout=1.0)
        time.sleep(0.5)  # the requests that came last are answered by nothing yet, but their connections settle
        self._emit()
        np.save(self._plan.times_file, self.times)
        while not self._is_over:
            self._take(timeout=1.0)

    @property
    def _is_over(self) -> bool:
        """Told to end, or left alone by a server that died."""
        return self._is_told_to_end or os.getppid() != self._parent

    def _emit(self) -> None:
        plan, started = self._plan, time.monotonic()
        for step in range(plan.num_tokens):
            for group in range(plan.groups):
                due = started + (step + group / plan.groups) * plan.period_s
                self._take(timeout=max(0.0, due - time.monotonic()))
                while (wait := due - time.monotonic()) > 0:
                    time.sleep(wait)
                self._send(step, group)

    def _send(self, step: int, group: int) -> None:
        plan = self._plan
        token_ids = (plan.token_ids[step % len(plan.token_ids)],)
        is_last = step == plan.num_tokens - 1
        numbers = [number for number in self._uids if number % plan.groups == group]
        replies = [
            TokenReply(
                self._uids[number],
                token_ids,
                "length" if is_last else None,
                cached_len=None if step else 0,
                queue_s=None if step else 0.0,
            )
            for number in numbers
        ]
        self.times[numbers, step] = time.monotonic()
        self._outbox.send(replies)

    def _take(self, timeout: float) -> None:
        for message in self._inbox.receive(timeout):
            if isinstance(message, UserMsg):
                self._uids[int(message.input_ids[0]) - FIRST_ID] = message.uid
            elif isinstance(message, StatsMsg):
                self._outbox.send([StatsReply(message.uid, EngineStats())])
            elif isinstance(message, AbortMsg):
                self._outbox.send([TokenReply(message.uid, finish_reason="abort")])
            self._is_told_to_end |= isinstance(message, ShutdownMsg)


def describe() -> EngineInfo:
    """What SmolLM2 would say of itself."""
    return EngineInfo(
        model="smollm2",
        path=str(resolve_model("smollm2")),
        vocab_size=49_152,
        max_seq_len=8192,
        pool_len=1 << 24,
        page_size=16,
        num_pages=1 << 20,
        end_token_ids=(2,),
        dtype="none",
        device="none",
        cache_type="radix",
        overlap=False,
        max_running_req=4096,
        max_extend_tokens=8192,
        policy="fcfs",
        max_overtakes=64,
        lookahead=256,
        eviction="lru",
        reserve="estimate",
        heeds_priority=False,
        explains=False,
        pid=os.getpid(),
    )


def main() -> None:
    folder = Path(sys.argv[1])
    plan = Plan.from_environ()
    inbox = SocketInbox(folder / "requests", request_codec(), bind=False)
    outbox = SocketOutbox(folder / "news", news_codec(), bind=False)
    FakeEngine(plan, inbox, outbox).run()
    inbox.close()
    outbox.close()
    finish_sending()


if __name__ == "__main__":
    main()

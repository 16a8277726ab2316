"""What is kept for an engine that is busy, in which order it goes out, and what never does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minisgl.core import SamplingParams
from minisgl.llm.sender import BATCH, Sender
from minisgl.message import AbortMsg, RequestMsg, UserMsg
from minisgl.message.wire import request_codec


class Outbox:
    """Takes `room` frames. during_offer: called once, in the middle of one."""

    def __init__(self) -> None:
        self.room = 0
        self.frames: list[list[RequestMsg]] = []
        self.during_offer: Any = None

    def has_room(self) -> bool:
        return self.room > 0

    def offer(self, frame: bytes) -> bool:
        if (call := self.during_offer) is not None:
            self.during_offer = None
            call()
        if self.room:
            self.room -= 1
            self.frames.append(request_codec().decode(frame))
            return True
        return False

    def close(self) -> None:
        self.room = 0

    def names(self) -> list[tuple[str, int]]:
        return [(type(message).__name__, message.uid) for frame in self.frames for message in frame]  # type: ignore[union-attr]


@pytest.fixture
def outbox() -> Outbox:
    return Outbox()


@pytest.fixture
def sender(outbox: Any) -> Sender:
    return Sender(outbox, request_codec())


def request(uid: int) -> UserMsg:
    return UserMsg(uid, np.array([1, 2], np.int32), SamplingParams(), 0, "")


def test_what_there_is_no_room_for_goes_out_later_and_in_order(sender: Sender, outbox: Outbox) -> None:
    sender.send([request(0), request(1)])
    sender.send([AbortMsg(7)])
    outbox.room = 9
    sender.send([request(2)])
    assert (outbox.frames, sender.num_kept) == ([], 4), "it would overtake the others"
    sender.flush()
    assert outbox.names() == [("UserMsg", 0), ("UserMsg", 1), ("AbortMsg", 7), ("UserMsg", 2)]
    sender.send([request(3)])
    assert (len(outbox.frames), sender.num_kept) == (2, 0)


def test_many_that_were_kept_go_out_in_few_frames_and_the_rest_stays(sender: Sender, outbox: Outbox) -> None:
    for uid in range(3 * BATCH):
        sender.send([request(uid)])
    outbox.room = 2
    sender.flush()
    assert (len(outbox.frames), sender.num_kept) == (2, BATCH)
    outbox.room = 1
    sender.flush()
    assert outbox.names() == [("UserMsg", uid) for uid in range(3 * BATCH)]


def test_a_request_that_is_taken_back_is_never_sent(sender: Sender, outbox: Outbox) -> None:
    sender.send([request(0), request(1)])
    assert sender.take_back(0)
    assert not sender.take_back(0)
    outbox.room = 1
    sender.flush()
    assert outbox.names() == [("UserMsg", 1)]
    assert not sender.take_back(1), "it is out"


def test_an_abort_that_comes_while_its_request_is_being_sent_follows_it(sender: Sender, outbox: Outbox) -> None:
    def abort() -> None:
        assert not sender.take_back(0)
        sender.send([AbortMsg(0)])
        sender.flush()

    sender.send([request(0)])
    outbox.room, outbox.during_offer = 2, abort
    sender.flush()
    sender.flush()
    assert outbox.names() == [("UserMsg", 0), ("AbortMsg", 0)]


def test_nothing_is_kept_for_an_engine_that_has_ended(sender: Sender) -> None:
    sender.send([request(0)])
    sender.close()
    sender.send([request(1)])
    assert sender.num_kept == 0

"""Two ends of a Unix socket, in one process here."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from minisgl.message import AbortMsg, RequestMsg
from minisgl.message.sockets import HIGH_WATER, SocketInbox, SocketOutbox
from minisgl.message.wire import request_codec

Ends = tuple[SocketInbox[RequestMsg], SocketOutbox[RequestMsg]]


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[Ends]:
    inbox = SocketInbox(tmp_path / "s", request_codec(), bind=True)
    outbox = SocketOutbox(tmp_path / "s", request_codec(), bind=False)
    with contextlib.closing(inbox), contextlib.closing(outbox):
        yield inbox, outbox


def test_messages_arrive_in_order(ends: Ends) -> None:
    inbox, outbox = ends
    for i in range(0, 100, 2):
        outbox.send([AbortMsg(i), AbortMsg(i + 1)])
    outbox.send([])
    got: list[RequestMsg] = []
    while len(got) < 100:
        got += inbox.receive(5)
    assert got == [AbortMsg(i) for i in range(100)]


def test_nothing_arrives_in_time(ends: Ends) -> None:
    assert ends[0].receive(0) == []
    assert ends[0].receive(0.01) == []


def test_an_inbox_that_waits_for_ever_is_woken(ends: Ends) -> None:
    inbox, outbox = ends
    sender = threading.Timer(0.05, outbox.send, [[AbortMsg(1)]])
    sender.start()
    assert inbox.receive(None) == [AbortMsg(1)]
    sender.join()


def test_a_receiver_that_stops_holds_a_bounded_number_of_frames(ends: Ends) -> None:
    """At the high-water mark an offer is refused; nothing that was taken is lost."""
    inbox, outbox = ends
    outbox.send([AbortMsg(-1)])
    assert inbox.receive(5) == [AbortMsg(-1)]
    frame, num_sent = request_codec().encode([AbortMsg(0)] * 1000), 0
    while outbox.offer(frame):
        num_sent += 1
        assert num_sent < 20 * HIGH_WATER
    num_received = 0
    while num_received < num_sent * 1000:
        num_received += len(inbox.receive(5))
    assert num_sent >= HIGH_WATER // 2


@pytest.mark.parametrize("bind", [True, False])
def test_a_path_that_is_too_long_for_a_socket_is_refused_with_its_length(tmp_path: Path, bind: bool) -> None:
    """Counted in bytes, not in characters."""
    path = tmp_path / ("\u00e4" * 60)
    with pytest.raises(
        ValueError, match=rf"{path} has {len(str(path)) + 60} bytes, but this system allows \d+; TMPDIR"
    ):
        SocketOutbox(path, request_codec(), bind=bind)

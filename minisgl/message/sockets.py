"""An inbox and an outbox between two processes of one machine: ZeroMQ over Unix sockets in a private folder.

Whoever made the folder (mode 0700) binds, the other side connects. Each way is one socket, in order and without loss
while both processes live. A sender that reaches the high-water mark waits: memory stays bounded in both processes.
Opening an end is a ValueError when its path is longer than the system takes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Generic, TypeVar

import zmq

from minisgl.message.wire import Codec

T = TypeVar("T")
REQUESTS, NEWS = "requests", "news"  # names of an engine's two sockets in their folder
HIGH_WATER = 256  # frames that wait on each side: steps of an engine one way, calls of a client the other
LINGER_MS = 2000  # how long a closing outbox tries to get rid of what it has


class SocketInbox(Generic[T]):
    """Receives from one `SocketOutbox`; for one thread."""

    def __init__(self, path: Path, codec: Codec[T], *, bind: bool) -> None:
        self._codec = codec
        self._socket = _open_socket(zmq.PULL, path, bind)

    def receive(self, timeout: float | None) -> list[T]:
        """All that has arrived, in order; waits for up to `timeout` seconds for it, or for ever (None).

        ValueError for bytes that are no messages.
        """
        messages: list[T] = []
        if self._socket.poll(None if timeout is None else int(timeout * 1000)):
            while (frame := self._next_frame()) is not None:
                messages += self._codec.decode(frame)
        return messages

    def close(self) -> None:
        self._socket.close(linger=0)

    def _next_frame(self) -> bytes | None:
        try:
            frame = self._socket.recv(zmq.NOBLOCK)
        except zmq.Again:
            return None
        assert isinstance(frame, bytes)
        return frame


class SocketOutbox(Generic[T]):
    """Sends to one `SocketInbox`; for one thread at a time."""

    def __init__(self, path: Path, codec: Codec[T], *, bind: bool) -> None:
        self._codec = codec
        self._socket = _open_socket(zmq.PUSH, path, bind)

    def send(self, messages: Sequence[T]) -> None:
        """One frame, if there is anything to send. Waits at the high-water mark."""
        if messages:
            self._socket.send(self._codec.encode(messages))

    def wait_for_inbox(self) -> None:
        """Until this end, which connects, is connected."""
        self._socket.poll(flags=zmq.POLLOUT)

    def has_room(self) -> bool:
        """Whether a frame could be sent now without waiting."""
        return bool(self._socket.poll(0, zmq.POLLOUT))

    def offer(self, frame: bytes) -> bool:
        """Send encoded messages, unless that would mean waiting; whether they were sent."""
        try:
            self._socket.send(frame, zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def close(self) -> None:
        """What is on its way still arrives, if the process waits for it with `finish_sending`."""
        self._socket.close(linger=LINGER_MS)


def finish_sending() -> None:
    """Wait until closed outboxes have got rid of what they had, but not much longer than LINGER_MS.

    The last call of a process here: all its sockets must have been closed.
    """
    zmq.Context.instance().term()


def _open_socket(kind: int, path: Path, bind: bool) -> zmq.Socket[bytes]:
    _check_len(path)
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(kind)
    socket.set_hwm(HIGH_WATER)
    socket.immediate = True  # there is nothing to send to before there is a connection
    (socket.bind if bind else socket.connect)(f"ipc://{path}")
    return socket


def _check_len(path: Path) -> None:
    num_bytes = len(os.fsencode(path))
    if num_bytes > zmq.IPC_PATH_MAX_LEN:
        raise ValueError(
            f"the path of the socket {path} has {num_bytes} bytes, but this system allows {zmq.IPC_PATH_MAX_LEN};"
            " TMPDIR says in which folder sockets lie"
        )

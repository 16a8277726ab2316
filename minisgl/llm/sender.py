"""What goes to an engine's process, and what waits here while that process is busy with a long step."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from minisgl.message import RequestMsg, UserMsg
from minisgl.message.sockets import SocketOutbox
from minisgl.message.wire import Codec

BATCH = 64  # kept messages in one frame: a frame is no larger than it must be, and few are needed


class Sender:
    """Sends in order and never waits; safe between threads.

    What the socket has no room for is kept. A request that is taken back meanwhile leaves nothing, so that clients who
    come and go do not fill the memory however long a step takes.
    """

    def __init__(self, outbox: SocketOutbox[RequestMsg], codec: Codec[RequestMsg]) -> None:
        self._outbox = outbox
        self._codec = codec
        self._kept: dict[object, RequestMsg] = {}  # requests by uid
        self._lock = threading.RLock()  # a collection under it may close a forgotten stream, which comes back here
        self._is_flushing = self._is_closed = False

    @property
    def num_kept(self) -> int:
        return len(self._kept)

    def encode(self, messages: Sequence[RequestMsg]) -> bytes:
        with self._lock:
            return self._codec.encode(messages)

    def send(self, messages: Sequence[RequestMsg], frame: bytes | None = None) -> None:
        """Now or later; dropped once closed. frame: the messages, if they were encoded already."""
        with self._lock:
            if not self._is_closed and not self._try(self.encode(messages) if frame is None else frame):
                for message in messages:
                    self._kept[message.uid if isinstance(message, UserMsg) else object()] = message

    def take_back(self, uid: int) -> bool:
        """Whether that request was still here. It is not sent then."""
        with self._lock:
            return self._kept.pop(uid, None) is not None

    def flush(self) -> None:
        """Send what was kept, as far as there is room."""
        with self._lock:
            if self._kept and not self._is_closed and not self._is_flushing:
                self._is_flushing = True
                kept, self._kept = self._kept, {}  # first of all: from here on nothing of it can be taken back
                self._kept = dict(self._offer([*kept.items()])) | self._kept
                self._is_flushing = False

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._kept.clear()
            self._outbox.close()

    def _offer(self, kept: list[tuple[object, RequestMsg]]) -> list[tuple[object, RequestMsg]]:
        """What there was no room for."""
        while kept and self._outbox.has_room():
            if not self._outbox.offer(self.encode([message for _, message in kept[:BATCH]])):
                break  # the other process ended just now
            del kept[:BATCH]
        return kept

    def _try(self, frame: bytes) -> bool:
        """Nothing overtakes what is kept, or is being flushed further up in this thread."""
        return not self._kept and not self._is_flushing and self._outbox.offer(frame)

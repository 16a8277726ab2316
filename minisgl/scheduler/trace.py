"""A trace of what the engine does, written while it runs."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import threading
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import msgspec

from minisgl.message import StepRecord
from minisgl.scheduler.trace_events import Event, TraceEvents
from minisgl.utils.logging import get_logger
from minisgl.utils.output_file import errors_name, fault_of

EVERY_S = 0.25
MAX_HELD = 4096  # records, while the disk is slow
CLOSED_WITHIN_S = 10.0
logger = get_logger(__name__)


class TraceFile:
    """A JSON array of events, one a line. Perfetto reads it without its end, too, so it may break off anywhere."""

    def __init__(self, path: str | Path) -> None:
        """OSError when the file cannot be written, or another trace is being written to it."""
        with contextlib.ExitStack() as stack:
            self._file: BinaryIO = stack.enter_context(open(path, "ab"))
            _claim(self._file)
            stack.pop_all()  # it is closed by `close`
        self._path = Path(path)
        self._encode = msgspec.json.Encoder().encode
        self._separator = b"[\n"

    def write(self, events: Iterable[Event]) -> None:
        """In one go, and on its way to the disk. OSError with the file's name when there is no room."""
        with errors_name(self._path):
            for event in events:
                self._file.write(self._separator + self._encode(event))
                self._separator = b",\n"
            self._file.flush()

    def end(self) -> None:
        """The end of the array. What comes after it does nothing."""
        with errors_name(self._path):
            self._file.write(b"\n]\n" if self._separator == b",\n" else b"[]\n")
            self._file.close()

    def close(self) -> None:
        """However far it is, and though the disk be full."""
        with contextlib.suppress(OSError):
            self._file.close()


class Trace:
    """Takes records, and writes them from a thread of its own, so that no step waits for a disk."""

    def __init__(self, path: str, pool_tokens: int) -> None:
        """OSError when the file cannot be written."""
        self._file = TraceFile(path)
        self._events = TraceEvents(pool_tokens)
        self._records: deque[StepRecord] = deque(maxlen=MAX_HELD)
        self._num_put = self._num_written = 0
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="minisgl-trace", daemon=True)
        self._thread.start()

    def put(self, record: StepRecord) -> None:
        """The next one. Of very many that could not be written yet the oldest goes."""
        self._records.append(record)
        self._num_put += 1

    def close(self) -> None:
        """Write what is left, and the end, unless the disk has stopped. May be called twice."""
        self._is_closing.set()
        self._thread.join(CLOSED_WITHIN_S)
        if self._thread.is_alive():
            logger.warning("the trace breaks off: what is left of it was not written within %g s", CLOSED_WITHIN_S)

    def _run(self) -> None:
        try:
            self._file.write(self._events.beginning())
            while not self._is_closing.wait(EVERY_S):
                self._write_all()
            self._write_all()
            self._file.write(self._events.end())
            self._file.end()
        except OSError as error:
            logger.error("the trace breaks off: %s", error)
        finally:
            self._file.close()
        if lost := self._num_put - self._num_written:
            logger.warning("the trace lacks %d of %d steps", lost, self._num_put)

    def _write_all(self) -> None:
        while self._records:
            self._file.write(self._events.of(self._records.popleft()))
            self._num_written += 1


def check_trace(path: str) -> None:
    """ValueError for a file that cannot be written. What it holds stays as it is."""
    if Path(path).is_fifo():  # whoever reads it would wait, or see its end at once
        raise ValueError(f"trace={path!r}: this is a pipe, not a file")
    if (fault := fault_of(Path(path))) is not None:
        raise ValueError(f"trace={path!r}: {fault}")


def _claim(file: BinaryIO) -> None:
    """Empty it, and let nobody else write a trace there meanwhile: two would be one that nobody can read."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BlockingIOError(errno.EWOULDBLOCK, "another trace is being written there", file.name) from None
    except OSError:  # not every file system can tell
        pass
    with contextlib.suppress(OSError):  # a device has no length
        file.truncate(0)

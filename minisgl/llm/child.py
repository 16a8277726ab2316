"""The engine's process and the sockets to it, as its parent has them: all of it is there, or nothing is left of it."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from minisgl.llm.config import LLMConfig
from minisgl.llm.processes import made, new_folder, running, tell
from minisgl.llm.sender import Sender
from minisgl.message.sockets import NEWS, REQUESTS, SocketInbox, SocketOutbox
from minisgl.message.wire import News, news_codec, request_codec


@dataclass(frozen=True, eq=False)
class Child:
    process: subprocess.Popen[bytes]
    folder: Path  # of the sockets; the process removes it once it is connected
    inbox: SocketInbox[News]
    sender: Sender


MODULE = "minisgl.llm.engine_process"  # what such a process runs


@contextlib.contextmanager
def running_child(config: LLMConfig) -> Iterator[Child]:
    """A process that has been told its configuration. Whatever happens meanwhile, it has ended afterwards.

    OSError when it cannot be started, ValueError when the folder for temporary files has too long a path.
    """
    folder, codec = new_folder(), request_codec()
    with (
        running(MODULE, folder) as process,
        made(folder),
        contextlib.closing(SocketInbox(folder / NEWS, news_codec(), bind=True)) as inbox,
        contextlib.closing(Sender(SocketOutbox(folder / REQUESTS, codec, bind=True), codec)) as sender,
    ):
        tell(process, config.to_kwargs())
        yield Child(process, folder, inbox, sender)

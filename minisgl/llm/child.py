"""The engine's process and the sockets to it, as its parent has them: all of it is there, or nothing is left of it."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from minisgl.llm.config import LLMConfig
from minisgl.llm.sender import Sender
from minisgl.message.sockets import NEWS, REQUESTS, SocketInbox, SocketOutbox
from minisgl.message.wire import News, news_codec, request_codec


@dataclass(frozen=True, eq=False)
class Child:
    process: subprocess.Popen[bytes]
    folder: Path  # of the sockets; the process removes it once it is connected
    inbox: SocketInbox[News]
    sender: Sender


@contextlib.contextmanager
def running_child(config: LLMConfig) -> Iterator[Child]:
    """A process that has been told its configuration. Whatever happens meanwhile, it has ended afterwards.

    OSError when it cannot be started, ValueError when the folder for temporary files has too long a path.
    """
    folder = Path(tempfile.gettempdir()) / f"minisgl-{secrets.token_hex(8)}"
    codec = request_codec()
    with (
        _process(folder) as process,  # before the folder is made: if we are killed, the process removes it
        _made(folder),
        contextlib.closing(SocketInbox(folder / NEWS, news_codec(), bind=True)) as inbox,
        contextlib.closing(Sender(SocketOutbox(folder / REQUESTS, codec, bind=True), codec)) as sender,
    ):
        _tell(process, config)
        yield Child(process, folder, inbox, sender)


def _command(folder: Path) -> list[str]:
    return [sys.executable, "-P", "-m", "minisgl.llm.engine_process", str(folder)]


@contextlib.contextmanager
def _process(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Its standard output is ours for errors: nothing of it is an answer."""
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)  # it shall find modules where we do
    env = {**os.environ, "PYTHONPATH": path}
    process = subprocess.Popen(_command(folder), stdin=subprocess.PIPE, stdout=2, start_new_session=True, env=env)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()


@contextlib.contextmanager
def _made(folder: Path) -> Iterator[None]:
    folder.mkdir(mode=0o700)
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _tell(process: subprocess.Popen[bytes], config: LLMConfig) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it is dead already; that is noticed elsewhere
        process.stdin.write(json.dumps(config.to_kwargs()).encode() + b"\n")
        process.stdin.flush()

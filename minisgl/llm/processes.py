"""Processes of our own, as their parent has them; `lifeline` is their side. None outlives its `with`."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from minisgl.utils import malloc


def new_folder() -> Path:
    """A path for sockets that nobody else has; nothing is there yet."""
    return Path(tempfile.gettempdir()) / f"minisgl-{secrets.token_hex(8)}"


@contextlib.contextmanager
def running(module: str, folder: Path, **environ: str) -> Iterator[subprocess.Popen[bytes]]:
    """`python -m MODULE FOLDER`. Started before the folder is made: if we are killed, the process removes it.

    Its standard output is ours for errors: nothing of it is an answer. OSError when it cannot be started.
    """
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)  # it shall find modules where we do
    env = {**os.environ, **malloc.child_environ(os.environ), **environ, "PYTHONPATH": path}
    command = [sys.executable, "-P", "-m", module, str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=2, start_new_session=True, env=env)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()


@contextlib.contextmanager
def made(folder: Path) -> Iterator[None]:
    folder.mkdir(mode=0o700)
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def tell(process: subprocess.Popen[bytes], configuration: Mapping[str, Any]) -> None:
    """What `lifeline.hear` gives there."""
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it is dead already; that is noticed elsewhere
        process.stdin.write(json.dumps(configuration).encode() + b"\n")
        process.stdin.flush()

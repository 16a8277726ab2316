"""How a process here hears its configuration and ends with its parent, whatever it is doing then.

The first line of standard input is the configuration in JSON; the input then stays open for as long as the parent
lives. FOLDER holds the sockets between the two; the parent makes it when this process runs already. Whichever of the
two is killed leaves nothing of it behind.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import sys
import threading
from pathlib import Path
from typing import Any

PARENT_DIED = 3  # exit code
_PR_SET_PDEATHSIG = 1


def hear(folder: Path) -> dict[str, Any]:
    """The configuration. From here on the end of standard input removes the folder and ends this process."""
    _leave_signals_to_the_parent()
    first_line = sys.stdin.readline()
    if not first_line.endswith("\n"):
        _watch_parent(folder)  # it is gone already
    threading.Thread(target=_watch_parent, args=(folder,), name="minisgl-lifeline", daemon=True).start()
    heard: dict[str, Any] = json.loads(first_line)
    return heard


def die_with_the_parent() -> None:
    """On Linux the kernel sees to it, even if every thread here is stuck. For when the folder is gone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _leave_signals_to_the_parent() -> None:
    """Ctrl-C, and a supervisor that signals the whole group, reach the parent too: it ends what runs, then this."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _watch_parent(folder: Path) -> None:
    """Anywhere: nobody writes to the standard input any more, so its end means that the parent is gone."""
    sys.stdin.read()
    remove(folder)
    os._exit(PARENT_DIED)

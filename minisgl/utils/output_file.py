"""Files that are to be written: whether they can be is found out before the work, and errors say where it failed."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

_FULL = (errno.ENOSPC, errno.EDQUOT)


def fault_of(path: Path) -> str | None:
    """Why a file of that name cannot be written; None if it can. Nothing is written to find that out."""
    if path.is_dir():
        return "this is a folder, not a file"
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        return "it may not be written"
    return None


@contextlib.contextmanager
def errors_name(path: Path) -> Iterator[None]:
    """Have an OSError in this block name `path`, as one of opening a file does and one of writing to it does not."""
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def is_full(error: BaseException) -> bool:
    """Whether it says that a disk has no room left, or the user's quota none."""
    return isinstance(error, OSError) and error.errno in _FULL


def full_disk_in(text: str) -> int | None:
    """The error number of a full disk that a program written in Python has printed; None if it has not."""
    return next((number for number in _FULL if f"[Errno {number}]" in text), None)


def free_bytes(folder: Path) -> int | None:
    """Room for files of this user in an existing folder, in bytes; None where the file system does not say."""
    usage = shutil.disk_usage(folder)
    return usage.free if usage.total else None

"""glibc's malloc, kept from growing without need. With another C library, or none that is known, nothing happens here.

A tensor on a CPU is aligned to 64 bytes. Before version 2.39 glibc cuts it out of a larger block and puts both rests
into caches of small blocks (tcache, fastbins), where they are not merged with their neighbours again. So the hole
that a tensor leaves is too small for the next one of its size, and the heap grows (sourceware bug 30723).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping

MAX_ARENAS = 2  # heaps that threads share; what is free in one of them is of no use to the others
_TUNABLES = {
    "glibc.malloc.tcache_count": 0,
    "glibc.malloc.mxfast": 0,
    "glibc.malloc.arena_max": MAX_ARENAS,
}
_ARENA_MAX = "MALLOC_ARENA_MAX"  # the older name of the last one
_M_ARENA_MAX = -8  # of mallopt


def child_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables for a process that computes, to be added to `environ`. What the user has set there stays.

    They are read when a program starts, and only one of them could be set later.
    """
    if not _is_glibc():
        return {}
    given = environ.get("GLIBC_TUNABLES", "")
    ours = [f"{name}={value}" for name, value in _TUNABLES.items() if not _is_set(name, environ)]
    return {"GLIBC_TUNABLES": ":".join([*ours, *filter(None, [given])])}


def limit_arenas() -> None:
    """Few heaps from now on, unless the user has said how many. Changes the process, so for programs of our own."""
    if _is_glibc() and not _is_set("glibc.malloc.arena_max", os.environ):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, MAX_ARENAS)


def return_free_memory() -> None:
    """To the system what malloc has kept of memory that was freed, if this malloc can: loading leaves 10 to 30 MB."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _is_set(tunable: str, environ: Mapping[str, str]) -> bool:
    names = [entry.partition("=")[0] for entry in environ.get("GLIBC_TUNABLES", "").split(":")]
    return tunable in names or (tunable == "glibc.malloc.arena_max" and _ARENA_MAX in environ)


def _is_glibc() -> bool:
    try:
        return bool(os.confstr("CS_GNU_LIBC_VERSION"))
    except (AttributeError, OSError, ValueError):  # no such name, or no such function
        return False

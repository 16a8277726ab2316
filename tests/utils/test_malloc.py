"""glibc's heap stays as small as what is in use, in processes that are started so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from minisgl.llm.processes import running
from minisgl.utils import malloc

GLIBC = pytest.mark.skipif(not malloc.child_environ({}), reason="another C library")

# What a forward pass does with its tensors, a little larger each time, while something small stays.
FORWARD_PASSES = """
import ctypes
libc = ctypes.CDLL(None)
class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("arena", *"bcdefghij")]
libc.mallinfo2.restype, libc.malloc.restype, libc.free.argtypes = Info, ctypes.c_void_p, [ctypes.c_void_p]
libc.posix_memalign.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_size_t]
def tensor(num_bytes):
    address = ctypes.c_void_p()
    assert libc.posix_memalign(ctypes.byref(address), 64, num_bytes) == 0
    return address.value
libc.free(tensor(8 << 20))
for step in range(200):
    before = tensor((1 << 19) + step * 4096)
    for _ in range(3):
        after = tensor((1 << 19) + step * 4096)
        libc.free(before)
        before = after
    libc.free(before)
    [libc.malloc(24 + 16 * size) for size in range(6)]
print(libc.mallinfo2().arena)
"""
# Eight threads that all hold memory at once; how many heaps they have it from.
EIGHT_THREADS = """
import ctypes, threading
from minisgl.utils.malloc import limit_arenas
limit_arenas()
libc, together = ctypes.CDLL(None), threading.Barrier(8)
libc.open_memstream.restype, libc.fclose.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
libc.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]
def work():
    together.wait()
    libc.malloc(100_000)
    together.wait()
threads = [threading.Thread(target=work) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
text, size = ctypes.c_char_p(), ctypes.c_size_t()
stream = libc.open_memstream(ctypes.byref(text), ctypes.byref(size))
assert libc.malloc_info(0, stream) == 0
libc.fclose(stream)
print(text.value.count(b"<heap nr="))
"""


def number_of(program: str, environ: dict[str, str]) -> int:
    """What the program prints, started with these variables and none of ours."""
    clean = {name: value for name, value in os.environ.items() if name not in ("GLIBC_TUNABLES", "MALLOC_ARENA_MAX")}
    out = subprocess.run([sys.executable, "-c", program], env=clean | environ, capture_output=True, check=True)
    return int(out.stdout)


@GLIBC
def test_a_heap_does_not_grow_with_every_tensor() -> None:
    assert number_of(FORWARD_PASSES, malloc.child_environ({})) < 10_000_000


@GLIBC
def test_threads_share_few_heaps() -> None:
    assert number_of(EIGHT_THREADS, {}) <= malloc.MAX_ARENAS


@GLIBC
@pytest.mark.parametrize("said", [{"MALLOC_ARENA_MAX": "8"}, {"GLIBC_TUNABLES": "glibc.malloc.arena_max=8"}])
def test_threads_have_as_many_heaps_as_the_user_says(said: dict[str, str]) -> None:
    assert number_of(EIGHT_THREADS, said) > malloc.MAX_ARENAS


@GLIBC
def test_what_the_user_has_set_stays() -> None:
    ours = malloc.child_environ({})["GLIBC_TUNABLES"]
    assert ours == "glibc.malloc.tcache_count=0:glibc.malloc.mxfast=0:glibc.malloc.arena_max=2"
    theirs = malloc.child_environ({"GLIBC_TUNABLES": "glibc.malloc.mxfast=64:glibc.rtld.nns=2"})["GLIBC_TUNABLES"]
    assert theirs == "glibc.malloc.tcache_count=0:glibc.malloc.arena_max=2:glibc.malloc.mxfast=64:glibc.rtld.nns=2"
    assert "arena_max" not in malloc.child_environ({"MALLOC_ARENA_MAX": "8"})["GLIBC_TUNABLES"]


@GLIBC
def test_a_child_of_a_child_gets_the_same() -> None:
    once = malloc.child_environ({})
    assert malloc.child_environ(once) == once


def test_nothing_is_set_for_another_c_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> str:
        raise ValueError(f"unrecognized configuration name {name}")

    monkeypatch.setattr(os, "confstr", unknown)
    assert malloc.child_environ({}) == {}
    malloc.limit_arenas()


@GLIBC
def test_a_process_that_computes_is_started_so(tmp_path: Path) -> None:
    """`lifeline` waits for its configuration, so it is still there."""
    with running("minisgl.llm.engine_process", tmp_path / "sockets") as process:
        environ = b""  # until the program is there
        while not environ:
            environ = Path(f"/proc/{process.pid}/environ").read_bytes()
            assert process.poll() is None, "it has ended"
    assert b"glibc.malloc.tcache_count=0" in environ
    assert b"glibc.malloc.mxfast=0" in environ

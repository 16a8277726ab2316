"""Files mapped into memory, of which no more is resident than what is read at the time. Needs no torch."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt

_POPULATE_READ = 22  # since Linux 5.14; the mmap module has no name for it


class MappedFile:
    """The bytes of a file, in a private copy-on-write map. OSError when it cannot be opened, ValueError if empty."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)

    def bytes_at(self, offset: int, num_bytes: int) -> npt.NDArray[np.uint8]:
        """[num_bytes], a view of the file."""
        return np.frombuffer(self.data, np.uint8, num_bytes, offset)

    @contextmanager
    def resident(self, offset: int, num_bytes: int) -> Iterator[None]:
        """In this block these bytes are in memory, and after it they count no more as this process's.

        A view stays good: it reads the file again. What was written to it is lost. Touched one by one, pages come 16 at
        a fault and take 0.2 to 0.9 s a GB, brought at once 0.03; and they would stay until the file is closed.
        """
        self._advise(_POPULATE_READ, offset, num_bytes)
        try:
            yield
        finally:
            self._advise(getattr(mmap, "MADV_DONTNEED", None), offset, num_bytes)

    def _advise(self, advice: int | None, offset: int, num_bytes: int) -> None:
        """Where the system does not know the advice, pages come as they are touched, or stay."""
        if advice is None or not num_bytes:
            return
        begin = offset // mmap.PAGESIZE * mmap.PAGESIZE
        with suppress(OSError):
            self.data.madvise(advice, begin, offset + num_bytes - begin)

"""Little-endian values read from a mapped file one after the other, with errors that say where the file ended."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np


class ByteCursor:
    """A position in `data`. `what` is the part being read: it is named, with the file, in every error."""

    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self.data, self.path = data, path
        self.pos = 0
        self.what = "header"

    def error(self, problem: str) -> ValueError:
        """To be raised: `problem` at the part being read."""
        return ValueError(f"{self.path}, {self.what}: {problem}")

    def check_holds(self, start: int, num_bytes: int) -> None:
        """Raises ValueError unless the file has the bytes [start, start + num_bytes)."""
        if start + num_bytes > len(self.data):
            ends = f"the file is cut off: it has {len(self.data)} bytes"
            raise self.error(f"{ends}, but {num_bytes} are needed from {start} on")

    def take(self, num_bytes: int) -> bytes:
        """The next bytes, as a copy. Raises ValueError when the file has fewer."""
        self.check_holds(self.pos, num_bytes)
        self.pos += num_bytes
        return self.data[self.pos - num_bytes : self.pos]

    def numbers(self, dtype: str, count: int) -> list[Any]:
        """The next `count` numbers of a NumPy dtype such as "<f4", as Python values."""
        taken = self.take(count * np.dtype(dtype).itemsize)
        values: list[Any] = np.frombuffer(taken, dtype).tolist()
        return values

    def uint(self, num_bytes: int) -> int:
        """The next unsigned integer."""
        return int.from_bytes(self.take(num_bytes), "little")

    def string(self) -> str:
        """The next string: its length in bytes as 8 bytes, then UTF-8."""
        return self.strings(1)[0]

    def strings(self, count: int) -> list[str]:
        """The next `count` strings: a vocabulary has a hundred thousand, so they are read in one loop."""
        data, size, begin, texts = self.data, len(self.data), self.pos, list[str]()
        try:
            for _ in range(count):
                start = begin + 8
                end = start + int.from_bytes(data[begin:start], "little")
                if end > size:
                    self.check_holds(begin, 8)
                    self.check_holds(start, end - start)
                texts.append(data[start:end].decode())
                begin = end
        except UnicodeDecodeError as error:
            raise self.error(f"not UTF-8: {error.object[:40]!r}") from None
        self.pos = begin
        return texts

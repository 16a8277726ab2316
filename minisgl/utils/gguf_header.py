"""What stands before the tensors of a GGUF file: metadata and the table of tensors. Needs no torch.

It is read here, since the `gguf` package takes a tenth of a second to import and seconds over a vocabulary of 49,152
tokens, and this takes 50 ms. Everything is checked against the file's length when it is opened, so that a cut-off file
is refused before any weight is read. Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from minisgl.utils.byte_cursor import ByteCursor
from minisgl.utils.gguf_kinds import check_kinds
from minisgl.utils.mapped_file import MappedFile

FLOATS = ("F32", "F16", "BF16")
_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_STRING, _ARRAY = 8, 9
_MAX_ARRAY = 2**22  # vocabularies and their merges are far smaller, and every value becomes an object
_NUMBERS = {0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8", 11: "<i8", 12: "<f8"}
# Types of tensors by ggml's number: name, numbers in a block, and the block's bytes.
TYPES = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    30: ("BF16", 1, 2),
    8: ("Q8_0", 32, 34),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    39: ("MXFP4", 32, 17),
}


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor lies. shape: as torch has it, rows first. type: ggml's name for it, such as "Q4_1".

    offset: of its first byte, from the start of the file.
    """

    name: str
    shape: tuple[int, ...]
    type: str
    offset: int
    num_bytes: int


class GGUFHeader:
    """One GGUF file, mapped into memory.

    metadata: key to str, int, float, bool or a list of these. tensors: name to `TensorInfo`, in the file's order.
    Raises ValueError naming the file, and the key or tensor, when it is not GGUF version 2 or 3 in little endian, is
    cut off anywhere, or holds a tensor of a type not supported; OSError when it cannot be opened.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._file = _map(self.path)
        cursor = ByteCursor(self._file.data, self.path)
        num_tensors, num_keys = _read_header(cursor)
        self.metadata = _read_metadata(cursor, num_keys)
        check_kinds(self.metadata, self.path)
        self.tensors = _read_table(cursor, num_tensors, self.metadata.get("general.alignment", 32))


def _map(path: Path) -> MappedFile:
    with path.open("rb") as file:
        start = file.read(len(_MAGIC))
        if start != _MAGIC:
            raise ValueError(f"{path} is not a GGUF file: it starts with {start!r}, not {_MAGIC!r}")
    return MappedFile(path)


def _read_header(cursor: ByteCursor) -> tuple[int, int]:
    """Number of tensors, number of metadata keys."""
    cursor.take(len(_MAGIC))
    version = cursor.uint(4)
    if version and version % 65536 == 0:
        raise cursor.error("big-endian files are not supported")
    if version not in _VERSIONS:
        raise cursor.error(f"GGUF version {version} is not supported, only {_VERSIONS}")
    return cursor.uint(8), cursor.uint(8)


def _read_metadata(cursor: ByteCursor, num_keys: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for index in range(num_keys):
        cursor.what = f"metadata key {index} of {num_keys}"
        key = cursor.string()
        cursor.what = f"metadata key {key!r}"
        if key in metadata:
            raise cursor.error("given twice")
        metadata[key] = _read_value(cursor)
    return metadata


def _read_value(cursor: ByteCursor) -> Any:
    kind = cursor.uint(4)
    if kind != _ARRAY:
        return _read_values(cursor, kind, 1)[0]
    kind, count = cursor.uint(4), cursor.uint(8)
    if count > _MAX_ARRAY:
        raise cursor.error(f"{count} values in one array, and {_MAX_ARRAY} are the most")
    return _read_values(cursor, kind, count)


def _read_values(cursor: ByteCursor, kind: int, count: int) -> list[Any]:
    if kind == _STRING:
        return cursor.strings(count)
    if kind not in _NUMBERS:
        raise cursor.error(f"unknown type of value {kind}")
    return cursor.numbers(_NUMBERS[kind], count)


def _read_table(cursor: ByteCursor, num_tensors: int, alignment: Any) -> dict[str, TensorInfo]:
    """The table of tensors; their data begins after it, at the next multiple of `alignment`."""
    if not isinstance(alignment, int) or alignment <= 0 or alignment % 8:
        raise ValueError(f"{cursor.path}: general.alignment={alignment!r} is not a positive multiple of 8")
    entries: dict[str, tuple[tuple[int, ...], int, int]] = {}
    for index in range(num_tensors):
        cursor.what = f"tensor {index} of {num_tensors}"
        name = cursor.string()
        cursor.what = f"tensor {name!r}"
        if name in entries:
            raise cursor.error("given twice")
        entries[name] = _read_entry(cursor, alignment)
    start = -(-cursor.pos // alignment) * alignment
    tensors = {name: _locate(cursor, name, start, *entry) for name, entry in entries.items()}
    _check_apart(cursor, tensors)
    return tensors


def _check_apart(cursor: ByteCursor, tensors: dict[str, TensorInfo]) -> None:
    by_offset = sorted(tensors.values(), key=lambda info: info.offset)
    for before, info in pairwise(by_offset):
        if info.offset < before.offset + before.num_bytes:
            cursor.what = f"tensor {info.name!r}"
            raise cursor.error(f"lies over tensor {before.name!r}")


def _read_entry(cursor: ByteCursor, alignment: int) -> tuple[tuple[int, ...], int, int]:
    """Shape, number of the type, and offset (from the start of the data) of one tensor."""
    num_dims = cursor.uint(4)
    if not 1 <= num_dims <= 4:
        raise cursor.error(f"{num_dims} dimensions, not 1 to 4")
    shape = tuple(reversed(cursor.numbers("<u8", num_dims)))
    if 0 in shape:
        raise cursor.error(f"shape {shape} holds nothing")
    number, offset = cursor.uint(4), cursor.uint(8)
    if number not in TYPES:
        known = ", ".join(name for name, _, _ in TYPES.values())
        raise cursor.error(f"type {_type_name(number)} is not supported, only {known}")
    if offset % alignment:
        raise cursor.error(f"offset {offset} is not a multiple of general.alignment={alignment}")
    return shape, number, offset


def _type_name(number: int) -> str:
    from gguf import GGMLQuantizationType

    try:
        return str(GGMLQuantizationType(number).name)
    except ValueError:
        return f"number {number}"


def _locate(cursor: ByteCursor, name: str, start: int, shape: tuple[int, ...], number: int, offset: int) -> TensorInfo:
    cursor.what = f"tensor {name!r}"
    type_name, block_len, block_bytes = TYPES[number]
    if shape[-1] % block_len:
        raise cursor.error(f"rows of {shape[-1]} are not whole {type_name} blocks of {block_len}")
    num_bytes = math.prod(shape) // block_len * block_bytes
    cursor.check_holds(start + offset, num_bytes)
    return TensorInfo(name, shape, type_name, start + offset, num_bytes)

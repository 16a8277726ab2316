"""What stands before the tensors of a GGUF file: metadata and the table of tensors. Needs no torch.

It is read here, since the `gguf` package takes seconds over a vocabulary of 49,152 tokens and this takes a tenth of
one. Everything is checked against the file's length when it is opened, so that a cut-off file is refused before any
weight is read. Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from minisgl.utils.byte_cursor import ByteCursor
from minisgl.utils.gguf_kinds import check_kinds
from minisgl.utils.mapped_file import MappedFile

FLOATS = ("F32", "F16", "BF16")
_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_STRING, _ARRAY = 8, 9
_MAX_ARRAY = 2**22  # vocabularies and their merges are far smaller, and every value becomes an object
_NUMBERS = {0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8", 11: "<i8", 12: "<f8"}
_TYPE_NAMES = {int(kind): str(kind.name) for kind in GGMLQuantizationType}
_SUPPORTED = (*FLOATS, "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K", "MXFP4")


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
        return [cursor.string() for _ in range(count)]
    if kind not in _NUMBERS:
        raise cursor.error(f"unknown type of value {kind}")
    return cursor.numbers(_NUMBERS[kind], count)


def _read_table(cursor: ByteCursor, num_tensors: int, alignment: Any) -> dict[str, TensorInfo]:
    """The table of tensors; their data begins after it, at the next multiple of `alignment`."""
    if not isinstance(alignment, int) or alignment <= 0 or alignment % 8:
        raise ValueError(f"{cursor.path}: general.alignment={alignment!r} is not a positive multiple of 8")
    entries: dict[str, tuple[tuple[int, ...], str, int]] = {}
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


def _read_entry(cursor: ByteCursor, alignment: int) -> tuple[tuple[int, ...], str, int]:
    """Shape, type and offset (from the start of the data) of one tensor."""
    num_dims = cursor.uint(4)
    if not 1 <= num_dims <= 4:
        raise cursor.error(f"{num_dims} dimensions, not 1 to 4")
    shape = tuple(reversed(cursor.numbers("<u8", num_dims)))
    if 0 in shape:
        raise cursor.error(f"shape {shape} holds nothing")
    number, offset = cursor.uint(4), cursor.uint(8)
    type_name = _TYPE_NAMES.get(number, f"number {number}")
    if type_name not in _SUPPORTED:
        raise cursor.error(f"type {type_name} is not supported, only {', '.join(_SUPPORTED)}")
    if offset % alignment:
        raise cursor.error(f"offset {offset} is not a multiple of general.alignment={alignment}")
    return shape, type_name, offset


def _locate(
    cursor: ByteCursor, name: str, start: int, shape: tuple[int, ...], type_name: str, offset: int
) -> TensorInfo:
    cursor.what = f"tensor {name!r}"
    block_len, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[type_name]]
    if shape[-1] % block_len:
        raise cursor.error(f"rows of {shape[-1]} are not whole {type_name} blocks of {block_len}")
    num_bytes = math.prod(shape) // block_len * block_bytes
    cursor.check_holds(start + offset, num_bytes)
    return TensorInfo(name, shape, type_name, start + offset, num_bytes)

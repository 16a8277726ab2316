"""The safetensors files of a folder: one, or the shards that an index names."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open

from minisgl.models.extra_tensors import part_in_answers, warn_of
from minisgl.utils.json_file import read_json
from minisgl.utils.mapped_file import MappedFile
from minisgl.utils.model_files import files_of
from minisgl.utils.model_files import names as names_of

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_PICKLED = (".bin", ".pt", ".pth", ".ckpt")
_FLOATS = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_NUMBERS = ("I64", "I32", "I16", "BOOL")  # of buffers, such as positions, and never of weights
_LENGTH_BYTES = 8  # of the number before the header


class SafetensorsFiles:
    """The weights of `folder`. Reads every header at once; the values stay in the mapped files.

    With an index, exactly the tensors that it names are taken, and other files are left alone. Raises ValueError
    naming the file, and the tensor: for a shard or tensor that is missing, a file that is cut off or damaged, a
    dtype that is no floating-point number. Integers that the answers do not depend on are left out with a warning.
    with_bytes: uint8 is taken, too.
    """

    def __init__(self, folder: Path, with_bytes: bool = False) -> None:
        dtypes = _FLOATS | ({"U8": torch.uint8} if with_bytes else {})
        index = folder / _INDEX
        wanted = _read_index(index) if index.is_file() else {_find_single(folder): None}
        self._shards = [_Shard(file, names, dtypes) for file, names in wanted.items()]

    @property
    def names(self) -> list[str]:
        """Of all tensors, in the order of `iter_tensors`."""
        return [name for shard in self._shards for name in shard.tensors]

    def iter_tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Names and tensors, file by file in the order of their bytes. Keeps no tensor."""
        for shard in self._shards:
            yield from shard.iter_tensors()


class _Entry(NamedTuple):
    """A tensor in a file: what it is, and its bytes from the start of the file."""

    dtype: str
    shape: list[int]
    offset: int
    num_bytes: int


class _Shard:
    """One file. wanted: the names to take, None stands for all. dtypes: what is taken, by safetensors' names.

    Errors as of `SafetensorsFiles`.
    """

    def __init__(self, path: Path, wanted: set[str] | None, dtypes: Mapping[str, torch.dtype]) -> None:
        _check_whole(path)
        self._file, self._dtypes = MappedFile(path), dtypes
        entries = _read_entries(self._file)
        if missing := (wanted or set()).difference(entries):
            raise ValueError(f"{path} lacks {min(missing)!r}, which {_INDEX} places there")
        taken = [(name, entry) for name, entry in entries.items() if wanted is None or name in wanted]
        buffers = {name for name, entry in taken if entry.dtype in _NUMBERS and _is_buffer(name, entries)}
        warn_of(sorted(buffers))
        taken = [(name, entry) for name, entry in taken if name not in buffers]
        self.tensors = dict(sorted(taken, key=lambda item: item[1].offset))
        for name, entry in self.tensors.items():
            if entry.dtype not in dtypes:
                known = ", ".join(dtypes)
                raise ValueError(f"{path}, tensor {name!r}: dtype {entry.dtype} is not supported, only {known}")

    def iter_tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        for name, entry in self.tensors.items():
            with self._file.resident(entry.offset, entry.num_bytes):
                yield name, self._tensor(entry)

    def _tensor(self, entry: _Entry) -> torch.Tensor:
        raw = torch.from_numpy(self._file.bytes_at(entry.offset, entry.num_bytes))
        return raw.view(self._dtypes[entry.dtype]).view(entry.shape)


def _is_buffer(name: str, entries: Mapping[str, _Entry]) -> bool:
    return not name.endswith((".weight", ".bias")) and part_in_answers(name, entries.__contains__) is None


def _find_single(folder: Path) -> Path:
    files = sorted(file for file in folder.glob("*.safetensors") if file.is_file())
    if folder / _SINGLE in files:
        return folder / _SINGLE
    if not files:
        raise ValueError(f"{folder} holds no weights in safetensors, {_what_else(files_of(folder))}")
    if len(files) != 1:
        raise ValueError(
            f"{folder} holds neither {_INDEX} nor {_SINGLE}, so which of these is meant: {names_of(files)}?"
        )
    return files[0]


def _what_else(files: list[Path]) -> str:
    pickled = [file for file in files if file.suffix in _PICKLED]
    return f"only pickled ones, which are not read: {names_of(pickled)}" if pickled else f"but {names_of(files)}"


def _read_index(index: Path) -> Mapping[Path, set[str] | None]:
    """Shards, in the order of their names, and the tensors that each must hold."""
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(shard, str) for shard in weight_map.values()):
        raise ValueError(f"{index} has no weight_map from tensors to files")
    files = sorted(set(weight_map.values()))
    if odd := [file for file in files if not _is_within_folder(file)]:
        raise ValueError(f"{index} names {odd[0]!r}, which is no file of its folder")
    shards: dict[Path, set[str]] = {index.parent / file: set() for file in files}
    for name, shard in weight_map.items():
        shards[index.parent / shard].add(name)
    return shards


def _is_within_folder(file: str) -> bool:
    """By its name: a link may lead anywhere, as those of Hugging Face's own cache do."""
    path = PurePath(file)
    return file.isprintable() and bool(path.parts) and ".." not in path.parts and not path.is_absolute()


def _if_stale(folder: Path) -> str:
    """Saving anew what fits one file leaves the old index behind, but whoever copied a part of a model has one, too."""
    return f"; if {_SINGLE} is the whole model, remove the index" if (folder / _SINGLE).is_file() else ""


def _check_whole(file: Path) -> None:
    """That the file is there, its header makes sense, and every tensor is as long as it should be."""
    if not file.is_file():
        raise ValueError(f"{file} is missing, though {_INDEX} names it{_if_stale(file.parent)}")
    try:
        with safe_open(file, framework="pt"):
            pass
    except SafetensorError as error:
        raise ValueError(f"{file} is cut off or damaged: {error}") from None


def _read_entries(file: MappedFile) -> dict[str, _Entry]:
    """What the header of a checked file says: a number of bytes, and as many of JSON; offsets count from there."""
    start = _LENGTH_BYTES + int.from_bytes(file.data[:_LENGTH_BYTES], "little")
    header = json.loads(file.data[_LENGTH_BYTES:start])
    header.pop("__metadata__", None)
    entries = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        entries[name] = _Entry(entry["dtype"], entry["shape"], start + begin, end - begin)
    return entries

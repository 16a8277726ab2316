"""The safetensors files of a folder: one, or the shards that an index names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from minisgl.utils.json_file import read_json
from minisgl.utils.model_files import files_of
from minisgl.utils.model_files import names as names_of

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_PICKLED = (".bin", ".pt", ".pth", ".ckpt")
_FLOATS = ("F64", "F32", "F16", "BF16")


class SafetensorsFiles:
    """The weights of `folder`. Reads every header at once; the values stay in the mapped files.

    With an index, exactly the tensors that it names are taken, and other files are left alone. Raises ValueError
    naming the file, and the tensor: for a shard or tensor that is missing, a file that is cut off or damaged, a
    dtype that is no floating-point number.
    """

    def __init__(self, folder: Path) -> None:
        index = folder / _INDEX
        wanted = _read_index(index) if index.is_file() else {_find_single(folder): None}
        self._names = {file: _check_header(file, names) for file, names in wanted.items()}

    @property
    def num_tensors(self) -> int:
        return sum(len(names) for names in self._names.values())

    def iter_tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Names and tensors, file by file in the order of their bytes. Keeps no tensor."""
        for file, names in self._names.items():
            with _opened(file) as handle:
                for name in names:
                    yield name, handle.get_tensor(name)


def _find_single(folder: Path) -> Path:
    files = sorted(folder.glob("*.safetensors"))
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
    shards: dict[Path, set[str]] = {index.parent / shard: set() for shard in sorted(set(weight_map.values()))}
    for name, shard in weight_map.items():
        shards[index.parent / shard].add(name)
    return shards


def _check_header(file: Path, wanted: set[str] | None) -> list[str]:
    """The names to take from one file, in the order of their bytes. wanted: None stands for all."""
    with _opened(file) as handle:
        present = handle.offset_keys()
        if missing := (wanted or set()).difference(present):
            raise ValueError(f"{file} lacks {min(missing)!r}, which {_INDEX} places there")
        names = [name for name in present if wanted is None or name in wanted]
        for name in names:
            dtype = handle.get_slice(name).get_dtype()
            if dtype not in _FLOATS:
                raise ValueError(f"{file}, tensor {name!r}: dtype {dtype} is not supported, only {', '.join(_FLOATS)}")
    return names


def _if_stale(folder: Path) -> str:
    """Saving anew what fits one file leaves the old index behind, but whoever copied a part of a model has one, too."""
    return f"; if {_SINGLE} is the whole model, remove the index" if (folder / _SINGLE).is_file() else ""


@contextmanager
def _opened(file: Path) -> Iterator[Any]:
    if not file.is_file():
        raise ValueError(f"{file} is missing, though {_INDEX} names it{_if_stale(file.parent)}")
    try:
        with safe_open(file, framework="pt") as handle:
            yield handle
    except SafetensorError as error:
        raise ValueError(f"{file} is cut off or damaged: {error}") from None

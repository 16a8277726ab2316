"""Rules for finding the model file in a folder, and for naming what another file is.

A GGUF file is known by its first bytes, whatever its name: Ollama calls its files sha256-.... Standard library only, as
a wrong name is answered before anything large is imported.
"""

from __future__ import annotations

import codecs
import re
import struct
from collections.abc import Sequence
from pathlib import Path

GGUF_MAGIC = b"GGUF"
_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf", re.IGNORECASE)  # the end of a split model's file name
# What GGUF files hold that are no models, by general.architecture or general.type.
_BESIDE_MODELS = {
    "clip": "a projector for images or sound (mmproj)",
    "mmproj": "a projector for images or sound (mmproj)",
    "adapter": "an adapter (LoRA), which is not supported",
    "imatrix": "an importance matrix for quantising",
    "controlvector": "a control vector, which is not supported",
}
_STARTS = {
    b"PK\x03\x04": "a ZIP archive, as PyTorch saves checkpoints",
    b"\x80\x02": "a pickle, as PyTorch once saved checkpoints",
    b"\x1f\x8b": "compressed by gzip",
    b"(\xb5/\xfd": "compressed by zstd",
    b"version https://git-lfs": "a Git LFS pointer, not the file itself: `git lfs pull` fetches it",
    **dict.fromkeys(
        (b"lmgg", b"fmgg", b"tjgg", b"algg"), "a GGML file from before GGUF, which has to be converted anew"
    ),
}
_STRING, _SIZES = 8, {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # bytes by type of value
_START_BYTES = 1 << 16
_SAFETENSORS = "weights in safetensors"


def find_gguf(path: Path) -> Path | None:
    """The GGUF file that `path` means: itself, or the only one of a folder without safetensors; None if there is none.

    In a folder, files whose name ends in .gguf count too, be they damaged. Those of projectors, adapters and the like
    do not. ValueError for a folder with several models, with a split one or with nothing but such others, and for a
    file that is one of them.
    """
    if path.is_file():
        return _check_is_model(path) if _is_gguf(path) else None
    if not path.is_dir() or any(path.glob("*.safetensors")):
        return None
    found = [file for file in files_of(path) if file.name[0] != "." and (is_gguf_name(file.name) or _is_gguf(file))]
    own = {file.resolve(): file for file in reversed(found)}.values()  # a link beside its file is the same model
    files = sorted(file for file in own if _beside_models(file) is None)
    if not files and found:
        raise ValueError(f"{path} holds no GGUF file of a model: {found[0].name} is {_beside_models(found[0])}")
    if len(files) > 1:
        _refuse_split(path, files)
        raise ValueError(f"{path} holds several GGUF files, name one: {names(files)}")
    return files[0] if files else None


def refuse_file(path: Path) -> ValueError:
    """To be raised for a file that is no model: says what it is."""
    kind = file_kind(path)
    if kind == _SAFETENSORS or path.name == "config.json":
        return ValueError(f"{path} is one file of a model: name its folder, {path.absolute().parent}")
    return ValueError(f"{path} is no .gguf file but {kind}; name a GGUF file or the folder that holds config.json")


def file_kind(path: Path) -> str:
    """A phrase that says what a file is, by its first bytes."""
    try:
        start = _start(path)
    except OSError as error:
        return f"unreadable ({error.strerror})"
    if not start:
        return "an empty file"
    for magic, kind in _STARTS.items():
        if start.startswith(magic):
            return kind
    if start[8:9] == b"{" and 2 <= int.from_bytes(start[:8], "little") <= path.stat().st_size - 8:
        return _SAFETENSORS
    text = start[: 1 << 12]
    try:
        codecs.getincrementaldecoder("utf-8")().decode(text, final=text == start)
    except UnicodeDecodeError:
        return "a binary file of another kind"
    if b"\0" in text:
        return "a binary file of another kind"
    return "a JSON file" if text.lstrip().startswith((b"{", b"[")) else "a text file"


def is_gguf_name(name: str) -> bool:
    """Whether a name says that it is a GGUF file."""
    return name.lower().endswith(".gguf")


def files_of(folder: Path) -> list[Path]:
    """What lies in a folder, by name, without folders."""
    return sorted(file for file in folder.iterdir() if file.is_file())


def names(files: Sequence[Path], limit: int = 10) -> str:
    """The files' names in one line, for a message."""
    text = ", ".join(file.name for file in files[:limit]) or "nothing"
    return text + f" and {len(files) - limit} more" * (len(files) > limit)


def _is_gguf(file: Path) -> bool:
    try:
        return _start(file, len(GGUF_MAGIC)) == GGUF_MAGIC
    except OSError:
        return False


def _check_is_model(file: Path) -> Path:
    if kind := _beside_models(file):
        raise ValueError(f"{file} is not a GGUF file of a model, but {kind}")
    return file


def _refuse_split(folder: Path, files: list[Path]) -> None:
    parts = [_PART.search(file.name) for file in files]
    if len({part and file.name[: part.start()] for part, file in zip(parts, files, strict=True)}) == 1 and parts[0]:
        raise ValueError(
            f"{folder} holds a model that is split into {int(parts[0][2])} files, which have to be merged first: "
            f"llama-gguf-split --merge {files[0].name} MERGED.gguf"
        )


def _beside_models(file: Path) -> str | None:
    """A phrase for a GGUF file that is no model."""
    texts = _first_texts(file)
    kinds = (_BESIDE_MODELS.get(texts.get(key, "")) for key in ("general.type", "general.architecture"))
    return next((kind for kind in kinds if kind), None)


def _first_texts(file: Path) -> dict[str, str]:
    """Text values of a GGUF file's metadata that stand before its first list, as general.* do."""
    data, found, pos = _start(file), dict[str, str](), 24
    if data[:4] != GGUF_MAGIC:
        return found
    try:
        for _ in range(struct.unpack_from("<Q", data, 16)[0]):
            key, pos = _read_text(data, pos)
            kind, pos = struct.unpack_from("<I", data, pos)[0], pos + 4
            if kind == _STRING:
                found[key], pos = _read_text(data, pos)
            elif kind in _SIZES:
                pos += _SIZES[kind]
            else:
                break
    except struct.error:  # what follows is behind the first bytes, or the file is cut off
        pass
    return found


def _read_text(data: bytes, pos: int) -> tuple[str, int]:
    length: int = struct.unpack_from("<Q", data, pos)[0]
    if pos + 8 + length > len(data):
        raise struct.error(f"{length} bytes are not there")
    return data[pos + 8 : pos + 8 + length].decode(errors="replace"), pos + 8 + length


def _start(file: Path, num_bytes: int = _START_BYTES) -> bytes:
    with file.open("rb") as opened:
        return opened.read(num_bytes)

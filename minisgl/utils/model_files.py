"""Which file of a folder is the model, by one rule for all who open it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def find_gguf(path: Path) -> Path | None:
    """The GGUF file that `path` means: itself, or the only one of a folder without safetensors; None if there is none.

    ValueError for a folder with several.
    """
    if path.is_file():
        return path if path.suffix == ".gguf" else None
    files = sorted(file for file in path.glob("*.gguf") if file.is_file())
    if not files or any(path.glob("*.safetensors")):
        return None
    if len(files) > 1:
        raise ValueError(f"{path} holds several GGUF files, name one: {names(files)}")
    return files[0]


def files_of(folder: Path) -> list[Path]:
    """What lies in a folder, by name, without folders."""
    return sorted(file for file in folder.iterdir() if file.is_file())


def names(files: Sequence[Path], limit: int = 10) -> str:
    """The files' names in one line, for a message."""
    text = ", ".join(file.name for file in files[:limit]) or "nothing"
    return text + f" and {len(files) - limit} more" * (len(files) > limit)

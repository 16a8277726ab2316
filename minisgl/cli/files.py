"""Files that a command is to write when it is done: whether it may is found out before the work."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def check_writable(flag: str, path: Path | None) -> None:
    """ValueError, with the flag's name, for a path that cannot be written. None is not asked for."""
    if path is None:
        return
    if path.is_dir():
        raise ValueError(f"{flag} {path}: this is a folder, not a file")
    if not path.parent.is_dir():
        raise ValueError(f"{flag} {path}: there is no folder {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ValueError(f"{flag} {path}: it may not be written")


def write_json(path: Path | None, summary: Mapping[str, Any]) -> None:
    if path is not None:
        path.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")

"""Files that a command is to write when it is done."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from minisgl.utils.output_file import errors_name, fault_of


def check_writable(flag: str, path: Path | None) -> None:
    """ValueError, with the flag's name, for a path that cannot be written. None is not asked for."""
    if path is not None and (fault := fault_of(path)) is not None:
        raise ValueError(f"{flag} {path}: {fault}")


def write_json(path: Path | None, summary: Mapping[str, Any]) -> None:
    if path is not None:
        with errors_name(path):
            path.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")

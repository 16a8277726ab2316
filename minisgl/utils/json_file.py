"""JSON files that must hold an object."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_json(file: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises ValueError naming the file if it holds anything else."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{file} holds no JSON object, but {type(content).__name__}")
    return content

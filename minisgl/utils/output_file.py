"""Files that are to be written later: whether they may be is found out before the work."""

from __future__ import annotations

import os
from pathlib import Path


def fault_of(path: Path) -> str | None:
    """Why a file of that name cannot be written; None if it can. Nothing is written to find that out."""
    if path.is_dir():
        return "this is a folder, not a file"
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        return "it may not be written"
    return None

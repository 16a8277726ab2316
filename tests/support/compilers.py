"""Programs that stand in for a C++ compiler."""

from __future__ import annotations

import stat
from pathlib import Path


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def fake_compiler(folder: Path, unknown: str = "-no-such-flag") -> str:
    """Notes every run in folder/runs, writes what it is to write, and knows all flags but one."""
    lines = (
        f'echo "$@" >> {folder}/runs',
        f'case " $* " in *" {unknown} "*) echo "c++: error: unrecognized option {unknown}" >&2; exit 1;; esac',
        'while [ $# -gt 1 ]; do if [ "$1" = -o ]; then echo built > "$2"; fi; shift; done',
    )
    return script(folder / "c++", "\n".join(lines))


def compilations(folder: Path) -> list[str]:
    """Command lines of `fake_compiler` that wrote something."""
    runs = folder / "runs"
    return [run for run in runs.read_text().splitlines() if " -o " in run] if runs.exists() else []

"""A virtual environment for each real client, kept below the user's cache folder for as long as its pins stay.

python tests/clients/environments.py [NAME ...]     # makes those that are missing; says how long each took
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import time
from pathlib import Path

from filelock import FileLock

from minisgl.env import ENV

REQUIREMENTS = Path(__file__).parents[1] / "clients" / "requirements"
NAMES = sorted(path.stem for path in REQUIREMENTS.glob("*.txt"))
PIP = ("-m", "pip", "install", "--quiet", "--no-compile", "--progress-bar", "off", "--disable-pip-version-check")
# By itself pip would take whatever build of torch is the largest.
FIRST = "torch=="


def environment(name: str) -> Path:
    """The folder of that client's environment, made if need be. CalledProcessError when pip fails."""
    requirements = REQUIREMENTS / f"{name}.txt"
    key = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = ENV.CACHE_DIR.value / "clients" / f"{name}-{key}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not (folder / "complete").exists():
            _make(folder, requirements)
    return folder


def python_of(name: str) -> Path:
    return environment(name) / "bin" / "python"


def _make(folder: Path, requirements: Path) -> None:
    """Older environments of the same client go; a half-made one is begun again."""
    for old in folder.parent.glob(f"{requirements.stem}-*/"):
        shutil.rmtree(old)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    first = [line for line in requirements.read_text().splitlines() if line.startswith(FIRST)]
    if first:
        subprocess.run([python, *PIP, *first], check=True)
    subprocess.run([python, *PIP, "--requirement", requirements], check=True)
    (folder / "complete").touch()


def main(names: list[str]) -> None:
    for name in names or NAMES:
        started = time.perf_counter()
        folder = environment(name)
        print(f"{name}: {folder}, {time.perf_counter() - started:.1f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

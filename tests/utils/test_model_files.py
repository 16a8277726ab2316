"""Files are told by what they begin with. tests/models/test_gguf_checkpoint.py opens whole ones by other names."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from minisgl.utils.model_files import file_kind, find_gguf
from minisgl.utils.model_store import resolve_model


def gguf(**texts: str) -> bytes:
    """The beginning of a GGUF file with these texts as its metadata, `__` standing for the dot, behind a number."""
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, len(texts) + 1) + entry("general.quantization_version", 4)
    return (
        head
        + struct.pack("<I", 2)
        + b"".join(entry(key.replace("__", "."), 8) + text_of(value) for key, value in texts.items())
    )


def entry(key: str, kind: int) -> bytes:
    return text_of(key) + struct.pack("<I", kind)


def text_of(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


MODEL = gguf(general__architecture="llama", general__type="model")
PROJECTOR = gguf(general__architecture="clip")
ADAPTER = gguf(general__architecture="llama", general__type="adapter")


@pytest.mark.parametrize("name", ["a.gguf", "A.GGUF", "sha256-abc", "model", "weights.bin", "a b.Gguf"])
def test_a_gguf_file_is_one_by_any_name(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_bytes(MODEL)
    assert find_gguf(file) == file
    assert resolve_model(str(file)) == file
    assert find_gguf(tmp_path) == file
    assert resolve_model(str(tmp_path)) == tmp_path


def test_a_link_to_one_is_one(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs/sha256-abc").write_bytes(MODEL)
    link = tmp_path / "model"
    link.symlink_to("blobs/sha256-abc")
    assert resolve_model(str(link)) == find_gguf(tmp_path) == link
    (tmp_path / "model.gguf").symlink_to("model")
    assert find_gguf(tmp_path) == link


def safetensors() -> bytes:
    header = json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(4)


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("empty", b"", "an empty file"),
        ("empty.gguf", b"", "an empty file"),
        ("notes.txt", b"some words\n", "a text file"),
        ("long.txt", ("é" * 40000).encode(), "a text file"),
        ("Modelfile.json", b' {"model": 1}', "a JSON file"),
        ("pointer.gguf", b"version https://git-lfs.github.com/spec/v1\noid sha256:1", "a Git LFS pointer"),
        ("old.bin", b"tjgg\x03\0\0\0", "a GGML file from before GGUF"),
        ("model.gguf.gz", b"\x1f\x8b\x08\0", "compressed by gzip"),
        ("old.pt", b"\x80\x02}q\0.", "a pickle"),
        ("noise", bytes(range(256)), "a binary file of another kind"),
        ("zeros", bytes(100), "a binary file of another kind"),
    ],
)
def test_another_file_is_refused_by_what_it_is(tmp_path: Path, name: str, content: bytes, kind: str) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(ValueError, match=f"{name} is no .gguf file but {kind}"):
        resolve_model(str(file))


def test_a_zip_archive_is_refused_by_what_it_is(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "pytorch_model.bin", "w") as archive:
        archive.writestr("data.pkl", b"")
    with pytest.raises(ValueError, match="but a ZIP archive, as PyTorch saves checkpoints; name a GGUF file or"):
        resolve_model(str(tmp_path / "pytorch_model.bin"))


@pytest.mark.parametrize(
    ("name", "content"),
    [("model.safetensors", safetensors()), ("weights", safetensors()), ("config.json", b"{}"), ("config.json", b"")],
)
def test_a_file_of_a_folder_is_answered_with_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes
) -> None:
    (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=f"{name} is one file of a model: name its folder, {tmp_path}"):
        resolve_model(name)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (PROJECTOR, r"a projector for images or sound \(mmproj\)"),
        (gguf(general__type="mmproj", general__architecture="other"), "a projector"),
        (ADAPTER, r"an adapter \(LoRA\), which is not supported"),
        (gguf(general__type="imatrix"), "an importance matrix"),
    ],
)
def test_a_gguf_file_that_is_no_model_is_refused_by_what_it_is(tmp_path: Path, content: bytes, kind: str) -> None:
    file = tmp_path / "x.gguf"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=f"not a GGUF file of a model, but {kind}"):
        resolve_model(str(file))
    with pytest.raises(ValueError, match=f"holds no GGUF file of a model: x.gguf is {kind}"):
        resolve_model(str(tmp_path))
    (tmp_path / "model").write_bytes(MODEL)
    assert find_gguf(tmp_path) == tmp_path / "model"


def test_a_folder_of_blobs_has_to_be_asked_for_one(tmp_path: Path) -> None:
    for name, content in (("sha256-a", MODEL), ("sha256-b", MODEL), ("sha256-c", b"a licence"), (".d.gguf", MODEL)):
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=r"several GGUF files, name one: sha256-a, sha256-b$"):
        resolve_model(str(tmp_path))


def test_a_damaged_file_with_the_ending_still_counts_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(b"<html>")
    assert find_gguf(tmp_path) == tmp_path / "a.gguf"  # whoever opens it says what is wrong


def test_a_split_model_is_answered_with_the_command_that_merges_it(tmp_path: Path) -> None:
    for part in (1, 2):
        (tmp_path / f"big-0000{part}-of-00002.gguf").write_bytes(MODEL)
    wanted = r"split into 2 files, .* llama-gguf-split --merge big-00001-of-00002\.gguf MERGED\.gguf"
    with pytest.raises(ValueError, match=wanted):
        resolve_model(str(tmp_path))
    (tmp_path / "other.gguf").write_bytes(MODEL)
    with pytest.raises(ValueError, match="several GGUF files"):
        resolve_model(str(tmp_path))


def test_a_file_cut_off_anywhere_is_a_model_as_far_as_one_sees(tmp_path: Path) -> None:
    file = tmp_path / "x"
    for length in range(4, len(ADAPTER)):
        file.write_bytes(ADAPTER[:length])
        assert find_gguf(file) == file


def test_lengths_that_are_lies_are_no_trouble(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 2**64 - 1) + struct.pack("<Q", 2**64 - 1) + b"general")
    assert find_gguf(file) == file


def test_a_file_that_may_not_be_read_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, mode: str) -> None:
        raise PermissionError(13, "Permission denied")

    file = tmp_path / "x"
    file.write_bytes(MODEL)
    monkeypatch.setattr(Path, "open", refuse)
    assert file_kind(file) == "unreadable (Permission denied)"
    with pytest.raises(ValueError, match=r"but unreadable \(Permission denied\)"):
        resolve_model(str(file))


def test_no_large_package_is_needed_to_refuse_a_file(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"words")
    code = f"""
import sys
from minisgl.utils.model_store import resolve_model
try:
    resolve_model({str(tmp_path / "x")!r})
except ValueError as error:
    print(error, {{"torch", "numpy", "transformers"}} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("holds config.json set()")

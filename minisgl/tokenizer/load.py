"""Loads a tokenizer from a Hugging Face folder or out of a GGUF file."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from minisgl.tokenizer.gguf_tokenizer import GGUFTokenizer, tokenizer_from_gguf
from minisgl.tokenizer.tokenizer import Tokenizer
from minisgl.utils.gguf_header import GGUFHeader
from minisgl.utils.json_file import read_json
from minisgl.utils.model_files import find_gguf

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_MODELS = ("tokenizer.model", "tiktoken.model")
_OTHERS = (*_MODELS, "tekken.json", "vocab.json")


def load_tokenizer(path: Path, header: GGUFHeader | None = None) -> Tokenizer:
    """The tokenizer of a model. path: a folder with a tokenizer's files, a GGUF file, or a folder with one.
    header: of that file, if it has been read already.

    tokenizer.json is taken where there is one. What else transformers reads, it converts: sentencepiece and tiktoken
    models, tekken.json, vocab.json with merges.txt. Reads the disk only and runs no code from there. Raises ValueError,
    naming the file, if there is no tokenizer, it is not supported, or a package is missing that reads it.
    """
    path = Path(path)
    if header is None and (gguf := find_gguf(path)):
        header = GGUFHeader(gguf)
    if header is not None:
        return Tokenizer(_read_gguf(header))
    if (path / "tokenizer.json").is_file():
        return Tokenizer(_read_folder(path))
    if any((path / name).is_file() for name in _OTHERS):
        return Tokenizer(_convert_folder(path))
    raise ValueError(f"{path} is neither a .gguf file nor a folder that holds tokenizer.json or {', '.join(_OTHERS)}")


def _read_gguf(header: GGUFHeader) -> GGUFTokenizer:
    try:
        return tokenizer_from_gguf(header.metadata)
    except Exception as error:  # `tokenizers` raises plain Exception for lists that do not fit together
        raise ValueError(f"{header.path}: {error}") from error


def _read_folder(path: Path) -> PreTrainedTokenizerFast:
    from transformers import PreTrainedTokenizerFast  # takes a second: not before there is a model

    try:
        # The generic class takes tokenizer.json as it is; model-specific ones rebuild parts of it by their own rules.
        return PreTrainedTokenizerFast.from_pretrained(path, local_files_only=True)
    except Exception as error:  # `tokenizers` raises plain Exception for a damaged file
        for file in sorted(path.glob("*token*.json")):
            read_json(file)  # which says it better, if it is not even JSON
        raise ValueError(f"the tokenizer in {path} cannot be read: {error}") from error


def _convert_folder(path: Path) -> PreTrainedTokenizerFast:
    """By the model's own class: it knows what the files do not say, such as where spaces are added."""
    _check_packages(path)
    from transformers import AutoTokenizer

    try:
        hf = AutoTokenizer.from_pretrained(path, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # of any kind: this reads files of many
        raise ValueError(f"the tokenizer in {path} cannot be converted: {error}") from error
    if not hf.is_fast:
        raise ValueError(f"the tokenizer in {path}, a {type(hf).__name__}, is in Python only, which is not supported")
    return hf


def _check_packages(path: Path) -> None:
    for file in (path / name for name in _MODELS):
        if not file.is_file():
            continue
        packages = ("sentencepiece", "google.protobuf") if _is_sentencepiece(file) else ("tiktoken",)
        if missing := [name.replace("google.", "") for name in packages if not _is_installed(name)]:
            what = f"{file} needs {' and '.join(missing)}, or a tokenizer.json beside it"
            raise ValueError(f"{what}: pip install 'minisgl[slow-tokenizers]'")


def _is_sentencepiece(file: Path) -> bool:
    """A protobuf whose first field is a list of pieces; tiktoken's files are lines of base64."""
    with file.open("rb") as opened:
        return opened.read(1) == b"\n"


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # what it is a part of is not there
        return False

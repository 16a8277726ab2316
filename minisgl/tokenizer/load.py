"""Loads a tokenizer from a Hugging Face folder or out of a GGUF file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from minisgl.tokenizer.gguf_tokenizer import tokenizer_from_gguf
from minisgl.tokenizer.tokenizer import Tokenizer
from minisgl.utils.gguf_header import GGUFHeader
from minisgl.utils.model_files import find_gguf

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


def load_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a model. path: a folder with tokenizer.json, a .gguf file, or a folder with one.

    Reads the disk only. Raises ValueError, naming the file, if there is no tokenizer or it is not supported.
    """
    path = Path(path)
    if gguf := find_gguf(path):
        return Tokenizer(_read_gguf(gguf))
    if not (path / "tokenizer.json").is_file():
        raise ValueError(f"{path} is neither a .gguf file nor a folder that holds tokenizer.json")
    return Tokenizer(_read_folder(path))


def _read_gguf(path: Path) -> PreTrainedTokenizerFast:
    metadata = GGUFHeader(path).metadata
    try:
        return tokenizer_from_gguf(metadata)
    except Exception as error:  # `tokenizers` raises plain Exception for lists that do not fit together
        raise ValueError(f"{path}: {error}") from error


def _read_folder(path: Path) -> PreTrainedTokenizerFast:
    from transformers import PreTrainedTokenizerFast  # takes a second: not before there is a model

    try:
        # The generic class takes tokenizer.json as it is; model-specific ones rebuild parts of it by their own rules.
        return PreTrainedTokenizerFast.from_pretrained(path, local_files_only=True)
    except Exception as error:  # `tokenizers` raises plain Exception for a damaged file
        raise ValueError(f"the tokenizer in {path} cannot be read: {error}") from error

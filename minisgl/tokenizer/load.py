"""Loads a tokenizer from a Hugging Face folder or out of a GGUF file."""

from __future__ import annotations

from pathlib import Path

from transformers import PreTrainedTokenizerFast

from minisgl.tokenizer.gguf_tokenizer import tokenizer_from_gguf
from minisgl.tokenizer.tokenizer import Tokenizer
from minisgl.utils.gguf_file import GGUFFile


def load_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a model. path: a folder that holds tokenizer.json, or a .gguf file. Reads the disk only.

    Raises ValueError if there is no tokenizer at `path`, or it is of a kind that is not supported.
    """
    path = Path(path)
    if path.is_file() and path.suffix == ".gguf":
        return Tokenizer(tokenizer_from_gguf(GGUFFile(path).metadata))
    if not (path / "tokenizer.json").is_file():
        raise ValueError(f"{path} is neither a .gguf file nor a folder that holds tokenizer.json")
    return Tokenizer(_read_folder(path))


def _read_folder(path: Path) -> PreTrainedTokenizerFast:
    try:
        # The generic class takes tokenizer.json as it is; model-specific ones rebuild parts of it by their own rules.
        return PreTrainedTokenizerFast.from_pretrained(path, local_files_only=True)
    except Exception as error:  # `tokenizers` raises plain Exception for a damaged file
        raise ValueError(f"the tokenizer in {path} cannot be read: {error}") from error

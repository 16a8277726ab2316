"""Where a model comes from: a folder as Hugging Face lays it out, or one GGUF file. Both give the same names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import torch

from minisgl.models.gguf_checkpoint import GGUFCheckpoint
from minisgl.models.hf_checkpoint import HFCheckpoint
from minisgl.models.sampling_defaults import Defaults
from minisgl.utils.grouped_tensor import GroupedTensor
from minisgl.utils.model_files import files_of, find_gguf, names, refuse_file

_ADAPTER = "adapter_config.json"  # transformers would load the model that it names, and add what it trained


class Checkpoint(Protocol):
    """Configuration, end tokens and weights of one model, in Hugging Face's names."""

    path: Path

    @property
    def num_weights(self) -> int:
        """How many tensors `iter_weights` gives."""
        ...

    def hf_config(self) -> dict[str, Any]:
        """The content of config.json, or what it would be."""
        ...

    def end_token_ids(self) -> frozenset[int]:
        """Every token id that ends a text by the configuration; the tokenizer may know more."""
        ...

    def sampling_defaults(self) -> Defaults:
        """Fields of `SamplingParams` as its makers advise; maybe none."""
        ...

    def iter_weights(self, all_in_integers: bool = False) -> Iterator[tuple[str, torch.Tensor | GroupedTensor]]:
        """Name and values of one tensor after the other, on the CPU. Keeps none of them: drop one to free it.

        all_in_integers: what is quantised otherwise than in groups of integers becomes 8 bits in such groups.
        They may be views of the mapped file, and must not be written to. Raises ValueError naming file and tensor.
        """
        ...


def open_checkpoint(path: Path, need_weights: bool = True) -> Checkpoint:
    """The checkpoint at `path`: a folder with config.json and safetensors, a GGUF file, or a folder with one.

    need_weights: False takes a folder with nothing but config.json, too. Reads headers only. Raises ValueError that
    says what was found where neither is, or when the weights are pickled, quantised, incomplete, cut off, or those of
    an adapter.
    """
    path = Path(path)
    if gguf := find_gguf(path):
        return GGUFCheckpoint(gguf)
    if path.is_file():
        raise refuse_file(path)
    if not path.is_dir():
        raise ValueError(f"{path} is neither a folder nor a file")
    return _open_folder(path, need_weights)


def _open_folder(path: Path, need_weights: bool) -> Checkpoint:
    if (path / _ADAPTER).is_file():
        raise ValueError(f"{path} holds {_ADAPTER}: adapters are not supported, merge this one into its model first")
    if not (path / "config.json").is_file():
        raise ValueError(f"{path} holds no config.json and no .gguf file, but {names(files_of(path))}")
    return HFCheckpoint(path, need_weights)

"""A model folder as Hugging Face lays it out: JSON files beside safetensors."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from minisgl.models.quantization import quantization_method
from minisgl.models.safetensors_files import SafetensorsFiles
from minisgl.models.sampling_defaults import Defaults, from_generation_config
from minisgl.utils.json_file import read_json

_GENERATION = "generation_config.json"


class HFCheckpoint:
    """The folder `path`; see `Checkpoint`. need_weights: False leaves the safetensors alone, `iter_weights` is empty.

    Raises ValueError for unreadable JSON, quantised weights, and whatever `SafetensorsFiles` finds.
    """

    def __init__(self, path: Path, need_weights: bool = True) -> None:
        self.path = path
        self._config = read_json(path / "config.json")
        self._refuse_quantised()
        self._files = SafetensorsFiles(path) if need_weights else None

    @property
    def num_weights(self) -> int:
        return self._files.num_tensors if self._files else 0

    def hf_config(self) -> dict[str, Any]:
        return self._config

    def end_token_ids(self) -> frozenset[int]:
        return self._end_token_ids

    def sampling_defaults(self) -> Defaults:
        return from_generation_config(self.path / _GENERATION, self._json(_GENERATION))

    def iter_weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        return self._files.iter_tensors() if self._files else iter(())

    @cached_property
    def _end_token_ids(self) -> frozenset[int]:
        ids = self._listed(self._config) | self._listed(self._json(_GENERATION))
        tokenizer_config = self._json("tokenizer_config.json")
        token = tokenizer_config.get("eos_token")
        if isinstance(token, dict):
            token = token.get("content")
        if isinstance(token, str):
            ids |= self._ids_of(token, tokenizer_config)
        return frozenset(ids)

    def _listed(self, config: dict[str, Any]) -> set[int]:
        """eos_token_id may be absent, null, one id or several; -1 stands for none."""
        eos = config.get("eos_token_id")
        ids = eos if isinstance(eos, list) else [] if eos is None else [eos]
        if not all(isinstance(token_id, int) for token_id in ids):
            raise ValueError(f"{self.path}: eos_token_id={eos!r} is neither a token id nor a list of them")
        return {token_id for token_id in ids if token_id >= 0}

    def _ids_of(self, token: str, tokenizer_config: dict[str, Any]) -> set[int]:
        """The ids that the tokenizer's files give to `token`: one, or none if they do not know it."""
        for id_text, added in tokenizer_config.get("added_tokens_decoder", {}).items():
            if added.get("content") == token:
                return {int(id_text)}
        tokenizer = self._json("tokenizer.json")
        for added in tokenizer.get("added_tokens", ()):
            if added["content"] == token:
                return {added["id"]}
        vocab = tokenizer.get("model", {}).get("vocab", {})
        return {vocab[token]} if isinstance(vocab, dict) and token in vocab else set()

    def _json(self, name: str) -> dict[str, Any]:
        file = self.path / name
        return read_json(file) if file.is_file() else {}

    def _refuse_quantised(self) -> None:
        if (method := quantization_method(self.path, self._config)) is not None:
            raise ValueError(f"{self.path}: weights quantised by method {method!r} are not supported")

"""A model folder as Hugging Face lays it out: JSON files beside safetensors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from minisgl.models import mxfp4
from minisgl.models.config import architecture_of
from minisgl.models.quantization import READ, quantization_method
from minisgl.models.safetensors_files import SafetensorsFiles
from minisgl.models.sampling_defaults import Defaults, from_generation_config
from minisgl.utils.grouped_tensor import GroupedTensor
from minisgl.utils.json_file import read_json

_GENERATION = "generation_config.json"


class HFCheckpoint:
    """The folder `path`; see `Checkpoint`. need_weights: False leaves the safetensors alone, `iter_weights` is empty.

    Raises ValueError for unreadable JSON, quantised weights, and whatever `SafetensorsFiles` finds.
    """

    def __init__(self, path: Path, need_weights: bool = True) -> None:
        self.path = path
        self._config = read_json(path / "config.json")
        self._is_packed = self._quantization() == "mxfp4"
        self._files = SafetensorsFiles(path, with_bytes=self._is_packed) if need_weights else None

    @property
    def num_weights(self) -> int:
        names = self._files.names if self._files else []
        return mxfp4.count_whole(names) if self._is_packed else len(names)

    def hf_config(self) -> dict[str, Any]:
        return self._config

    def end_token_ids(self) -> frozenset[int]:
        text = self._config.get("text_config")
        parts = (self._config, text if isinstance(text, dict) else {}, self._json(_GENERATION))
        return frozenset().union(*map(self._listed, parts))

    def sampling_defaults(self) -> Defaults:
        return from_generation_config(self.path / _GENERATION, self._json(_GENERATION))

    def iter_weights(self, all_in_integers: bool = False) -> Iterator[tuple[str, torch.Tensor | GroupedTensor]]:
        weights = self._files.iter_tensors() if self._files else iter(())
        return self._joined(weights) if self._is_packed else weights

    def _joined(
        self, weights: Iterator[tuple[str, torch.Tensor]]
    ) -> Iterator[tuple[str, torch.Tensor | GroupedTensor]]:
        try:
            yield from mxfp4.joined(weights)
        except ValueError as error:
            raise ValueError(f"{self.path}: {error}") from error

    def _listed(self, config: dict[str, Any]) -> set[int]:
        """eos_token_id may be absent, null, one id or several; -1 stands for none."""
        eos = config.get("eos_token_id")
        ids = eos if isinstance(eos, list) else [] if eos is None else [eos]
        if not all(isinstance(token_id, int) and not isinstance(token_id, bool) for token_id in ids):
            raise ValueError(f"{self.path}: eos_token_id={eos!r} is neither a token id nor a list of them")
        return {token_id for token_id in ids if token_id >= 0}

    def _json(self, name: str) -> dict[str, Any]:
        file = self.path / name
        return read_json(file) if file.is_file() else {}

    def _quantization(self) -> str | None:
        """The method by which the weights are quantised, if any is. ValueError if it is not read."""
        method = quantization_method(self.path, self._config)
        if method is not None and (method not in READ or READ[method] != architecture_of(self._config)):
            raise ValueError(f"{self.path}: weights quantised by method {method!r} are not supported")
        return method

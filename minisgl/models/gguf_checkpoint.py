"""A model in one GGUF file, shown in Hugging Face's names and order of rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from minisgl.models.extra_tensors import part_in_answers, warn_of
from minisgl.models.gguf_config import hf_config
from minisgl.models.gguf_names import LONGROPE, hf_name
from minisgl.models.sampling_defaults import Defaults, from_gguf
from minisgl.utils.gguf_file import GGUFFile, Order
from minisgl.utils.grouped_tensor import GroupedTensor

_END_IDS = ("eos", "eot", "eom")  # of the text, of the turn, of the message
# Most files name only one of several end tokens, so llama.cpp finds the others by their text (llama-vocab.cpp,
# special_eog_ids); these are the ones that models of our architectures use.
_END_TEXTS = frozenset(
    (
        *("<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<|endoftext|>", "<|end_of_text|>"),
        *("<end_of_turn>", "</s>", "<|return|>", "<|call|>"),
    )
)
_PERMUTED = ("llama", "smollm3", "granite")  # whose q and k have the rows in another order than Hugging Face
_WHOLE_NORMS = ("gemma2", "gemma3")  # whose norms are what is multiplied by; Hugging Face has 1 less
_CONTROL = 3  # llama.cpp's type of tokens that are no text


class GGUFCheckpoint:
    """The file `path`; see `Checkpoint`. Tensors that the file quantises come grouped, or else as float32.

    Raises ValueError naming the file for all that `GGUFFile` and `hf_config` refuse, for a tensor with an unknown
    name that must not be left out (see `part_in_answers`), and for one part of a split file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = GGUFFile(path)
        self._architecture = str(self.file.metadata.get("general.architecture"))
        if (num_parts := self.file.metadata.get("split.count", 1)) not in (0, 1):
            raise ValueError(
                f"{path} is one of the {num_parts} parts of a split model, which have to be merged first: "
                "llama-gguf-split --merge FIRST MERGED.gguf"
            )
        self._config = hf_config(self.file)
        known = {name: self._known_name(name) for name in self.file.tensors if name not in LONGROPE}
        self._names = {name: in_hf for name, in_hf in known.items() if in_hf is not None}
        warn_of(known.keys() - self._names.keys())

    @property
    def num_weights(self) -> int:
        return len(self._names)

    def hf_config(self) -> dict[str, Any]:
        return self._config

    def end_token_ids(self) -> frozenset[int]:
        named = {key: self._tokenizer(key) for key in (f"{token}_token_id" for token in _END_IDS)}
        for key, token_id in named.items():
            if not isinstance(token_id, int | None):
                raise ValueError(f"{self.path}: tokenizer.ggml.{key} is {token_id!r}, not a token id")
        return frozenset(named.values()) - {None} | self._end_tokens_by_text()

    def sampling_defaults(self) -> Defaults:
        return from_gguf(self.path, self.file.metadata)

    def iter_weights(self, all_in_integers: bool = False) -> Iterator[tuple[str, torch.Tensor | GroupedTensor]]:
        for name, name_in_hf in self._names.items():
            with self.file.resident(name):
                yield name_in_hf, self._read(name, all_in_integers)

    def _end_tokens_by_text(self) -> set[int]:
        """Control tokens that end a text in any model; not the unknown token, which SmolLM2 calls <|endoftext|>."""
        tokens, types = self._tokenizer("tokens", []), self._tokenizer("token_type", [])
        pairs = enumerate(zip(tokens, types, strict=False))  # a list that is too short is the tokenizer's to refuse
        # Where there is a <|return|>, as in GPT-OSS, an <|end|> has the next message behind it.
        texts = _END_TEXTS - {"<|end|>"} if "<|return|>" in tokens else _END_TEXTS
        ends = {token_id for token_id, (text, kind) in pairs if kind == _CONTROL and text in texts}
        return ends - {self._tokenizer("unknown_token_id")}

    def _tokenizer(self, key: str, default: Any = None) -> Any:
        return self.file.metadata.get(f"tokenizer.ggml.{key}", default)

    def _known_name(self, name: str) -> str | None:
        known = hf_name(name, self._architecture)
        if known is None and (reason := part_in_answers(name, self._has_weight)) is not None:
            raise ValueError(f"{self.path}: tensor {name!r} belongs to no model that is supported, and {reason}")
        return known

    def _has_weight(self, name: str) -> bool:
        return hf_name(name, self._architecture) is not None

    def _read(self, name: str, all_in_integers: bool) -> torch.Tensor | GroupedTensor:
        heads = self._permuted_heads(name)
        order = halves_of_pairs(self.file.tensors[name].shape[0], heads) if heads else None
        grouped = self.file.read_grouped(name, all_in_integers, order)
        if grouped is not None:
            return grouped
        tensor = self.file.read(name, order)
        is_whole = self._architecture in _WHOLE_NORMS and name.endswith("norm.weight")
        return tensor - 1 if is_whole else tensor

    def _permuted_heads(self, name: str) -> int:
        """Number of heads whose rows llama.cpp's converter re-ordered, 0 for none: it does so for few models only."""
        part = name.split(".")[-2]
        if self._architecture not in _PERMUTED or part not in ("attn_q", "attn_k"):
            return 0
        heads: int = self._config["num_attention_heads" if part == "attn_q" else "num_key_value_heads"]
        fits = self.file.tensors[name].shape[0] == heads * self._config["head_dim"]
        return heads if fits else 0  # a tensor of another shape is refused by it when it is loaded


def halves_of_pairs(num_rows: int, num_heads: int) -> Order:
    """[num_rows]: where in the file the rows of q or k are, H * D of them, that Hugging Face has in this order.

    llama.cpp rotates neighbouring rows of a head, so the file has pairs (0, D/2), (1, D/2 + 1) ..; Hugging Face rotates
    the halves 0 .. D/2 - 1 and D/2 .. D - 1. Rows are moved as they lie in the file, where they are the least bytes.
    """
    return np.arange(num_rows).reshape(num_heads, -1, 2).swapaxes(1, 2).reshape(-1)

"""Random models whose weights are bfloat16 numbers, and what transformers makes of the same numbers in float32.

Heads are as wide as real ones (64 and 128), and the scores of attention spread by about 1, so that it is neither even
nor one-hot: one wrong key shows, and rounding is not blown up.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from support.tiny_model import make_tokenizer
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

VOCAB = 512
MAX_POSITIONS = 8192
SHAPE = {
    "vocab_size": VOCAB,
    "hidden_size": 256,
    "intermediate_size": 384,
    "num_hidden_layers": 2,
    "max_position_embeddings": MAX_POSITIONS,
    "initializer_range": 0.07,
    "bos_token_id": 256,
    "eos_token_id": 257,
}


def make_llama_64(folder: Path) -> Path:
    """Four heads of 64, two a KV head."""
    torch.manual_seed(0)
    return _save(LlamaForCausalLM(LlamaConfig(**SHAPE, num_attention_heads=4, num_key_value_heads=2)), folder)


def make_qwen3_128(folder: Path) -> Path:
    """Eight heads of 128, four a KV head, each normalised."""
    torch.manual_seed(0)
    config = Qwen3Config(
        **SHAPE, num_attention_heads=8, num_key_value_heads=2, head_dim=128, tie_word_embeddings=True, rope_theta=1e6
    )
    return _save(Qwen3ForCausalLM(config), folder)


def make_qwen3_windows_128(folder: Path) -> Path:
    """The same, but the second layer sees 100 tokens; the first one sees all."""
    torch.manual_seed(0)
    windows = {"use_sliding_window": True, "sliding_window": 100, "max_window_layers": 1}
    config = Qwen3Config(**SHAPE, **windows, num_attention_heads=8, num_key_value_heads=2, head_dim=128, rope_theta=1e6)
    return _save(Qwen3ForCausalLM(config), folder)


MODELS = {"llama-64": make_llama_64, "qwen3-128": make_qwen3_128, "qwen3-windows-128": make_qwen3_windows_128}
"""By name, the last part of which is the head dim."""


def _save(model: Any, folder: Path) -> Path:
    for weight in model.parameters():
        weight.data = weight.data.bfloat16().float()
    model.save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


class Reference:
    """The model in float32 on the CPU, one whole sequence at a time, without a cache of keys and values."""

    def __init__(self, folder: Path) -> None:
        kind = Qwen3ForCausalLM if "qwen3" in (folder / "config.json").read_text() else LlamaForCausalLM
        self._model = kind.from_pretrained(folder, dtype=torch.float32)
        self._logits = cache(self._compute)

    def logits(self, ids: Sequence[int]) -> torch.Tensor:
        """[len(ids), V]; kept, as many runs ask for the same."""
        return self._logits(tuple(ids))

    @torch.inference_mode()
    def _compute(self, ids: tuple[int, ...]) -> torch.Tensor:
        return self._model(torch.tensor([ids]), use_cache=False).logits[0]

    def lag(self, prompt: Sequence[int], tokens: Sequence[int]) -> torch.Tensor:
        """[len(tokens)]: how far each generated token's logit is below the best, given the tokens before it.

        0 where it is the best one. Where two are as good as equal, either of them lags by next to nothing.
        """
        logits = self.logits([*prompt, *tokens[:-1]])[len(prompt) - 1 :]
        return logits.amax(-1) - logits[torch.arange(len(tokens)), torch.tensor(tokens)]

    def logprobs(self, ids: Sequence[int]) -> torch.Tensor:
        """[len(ids), V]: of the token that follows each."""
        return self.logits(ids).log_softmax(-1)

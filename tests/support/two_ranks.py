"""A tiny model for two ranks, which cannot share all of it evenly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from support.tiny_model import BOS, EOS, make_tokenizer
from transformers import Qwen3Config, Qwen3ForCausalLM

VOCAB = 301  # which two ranks cannot share evenly


def make_tiny_qwen3(folder: Path) -> Path:
    """Write a two-layer Qwen3 in float32, with the head tied to the embedding and a byte tokenizer, to `folder`."""
    torch.manual_seed(1)
    shape: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": 48,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 512,
        "initializer_range": 0.3,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "tie_word_embeddings": True,
    }
    Qwen3ForCausalLM(Qwen3Config(**shape)).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder

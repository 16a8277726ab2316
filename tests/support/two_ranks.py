"""A tiny model for two ranks, which cannot share all of it evenly."""

from __future__ import annotations

from pathlib import Path

import torch
from support.tiny_model import SHAPE, make_tokenizer
from transformers import Qwen3Config, Qwen3ForCausalLM

VOCAB = 301  # which two ranks cannot share evenly


def make_tiny_qwen3(folder: Path) -> Path:
    """Write a two-layer Qwen3 in float32, with the head tied to the embedding and a byte tokenizer, to `folder`."""
    torch.manual_seed(1)
    shape = SHAPE | {"vocab_size": VOCAB, "head_dim": 16, "tie_word_embeddings": True}
    Qwen3ForCausalLM(Qwen3Config(**shape)).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder

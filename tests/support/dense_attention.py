"""Attention without a cache, and tiny models to run it with: what model tests need in place of an engine."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from support import by_the_book

from minisgl.attention import AttnForm
from minisgl.attention.base import BaseAttnBackend
from minisgl.core import Batch, Context, Staging
from minisgl.distributed import SINGLE, TPInfo
from minisgl.engine.engine import attn_form
from minisgl.kvcache.pool import MHAKVCache
from minisgl.models import BaseCausalLM, ModelConfig, create_model, load_model, open_checkpoint

TINY = Path(__file__).parents[1] / "data" / "tiny"
CPU = torch.device("cpu")


class DenseAttention(BaseAttnBackend):
    """The batch is one whole sequence; all scores exist at once, and what a position does not see is masked."""

    def __init__(self, form: AttnForm) -> None:
        self._form = form

    def plan(self, batch: Batch, staging: Staging, padded: int | None = None) -> None:
        raise AssertionError("dense attention needs no plan")

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        layer_id: int,
        meta: Any,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        sees = by_the_book.seen(0, len(q), self._form.windows[layer_id])
        return by_the_book.attend(q.float(), k.float(), v.float(), sees, self._form, sinks).to(q.dtype)


def one_sequence(model: BaseCausalLM, length: int) -> Context:
    """To run one whole sequence by itself, with a pool of its own."""
    config, place = model.config, model.place
    num_kv_heads = place.tp.shard("num_kv_heads", config.num_kv_heads)
    pool = MHAKVCache(num_kv_heads, config.num_layers, config.head_dim, length, 1, place.dtype, place.device)
    slots = torch.arange(length, dtype=torch.int32, device=place.device)
    return Context(page_size=1, kv_pool=pool, attn_backend=DenseAttention(attn_form(config)), out_loc=slots)


def read_json(folder: str, name: str) -> Any:
    return json.loads((TINY / folder / name).read_text(encoding="utf-8"))


def tiny_file(folder: str) -> Path:
    """The weights of one folder of tests/data/tiny; see the README there."""
    own = TINY / folder / "model.safetensors"
    return own if own.exists() else TINY / "untied" / "model.safetensors"


def tiny_weights(folder: str) -> dict[str, torch.Tensor]:
    return load_file(tiny_file(folder))


def tiny_reference(folder: str) -> Any:
    """What transformers makes of the folder."""
    return read_json(folder.partition("_v4config")[0], "ref.json")


def make_model(
    hf_config: dict[str, Any],
    weights: Iterable[tuple[str, torch.Tensor]],
    dtype: torch.dtype = torch.float32,
    tp: TPInfo = SINGLE,
    device: torch.device = CPU,
) -> BaseCausalLM:
    model = create_model(ModelConfig.from_hf(hf_config), dtype, device, tp)
    for name, tensor in weights:
        model.load_weight(name, tensor)
    model.finish_loading()
    return model


def load_saved(folder: Path, tp: TPInfo = SINGLE, dtype: torch.dtype = torch.float32) -> BaseCausalLM:
    checkpoint = open_checkpoint(folder)
    return load_model(checkpoint, ModelConfig.from_hf(checkpoint.hf_config()), dtype, CPU, tp)


@torch.inference_mode()
def all_logits(model: BaseCausalLM, ids: list[int]) -> torch.Tensor:
    """Logits at every position of one sequence, [len(ids), V]."""
    positions = torch.arange(len(ids), dtype=torch.int32)
    ctx = one_sequence(model, len(ids))
    return model.compute_logits(model(torch.tensor(ids, dtype=torch.int32), positions, ctx))

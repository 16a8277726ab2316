"""A GGUF file through the whole model: logits against the reference, for every type of block and mix of types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support.gguf_variants import LOGITS, reference_variant

from minisgl.core import Context
from minisgl.models import ModelConfig, load_model, open_checkpoint

CPU = torch.device("cpu")


class OneSequence:
    """Attention over one whole sequence, without a KV pool."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layer_id: int, meta: Any) -> torch.Tensor:
        q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return out[0].transpose(0, 1).flatten(1)


@torch.inference_mode()
def logits_of(path: Path, ids: list[int]) -> torch.Tensor:
    checkpoint = open_checkpoint(path)
    model = load_model(checkpoint, ModelConfig.from_hf(checkpoint.hf_config()), torch.float32, CPU)
    context = Context(page_size=1, attn_backend=OneSequence())
    return model.compute_logits(model(torch.tensor(ids), torch.arange(len(ids)), context))


@pytest.mark.parametrize("variant", LOGITS["models"])
def test_logits_of_every_llama_are_those_of_the_reference(variant: str, tmp_path: Path) -> None:
    logits = logits_of(reference_variant(tmp_path / "model.gguf", variant), LOGITS["ids"])
    expected = LOGITS["models"][variant]
    assert logits.argmax(-1).tolist() == expected["argmax"]
    torch.testing.assert_close(logits[-1, :16], torch.tensor(expected["last_logits"]), rtol=0, atol=1e-3)

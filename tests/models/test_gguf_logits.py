"""A GGUF file through the whole model: logits against the reference, for every type of block and mix of types."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.dense_attention import all_logits
from support.gguf_variants import LOGITS, reference_variant

from minisgl.models import ModelConfig, load_model, open_checkpoint

CPU = torch.device("cpu")


def logits_of(path: Path, ids: list[int]) -> torch.Tensor:
    checkpoint = open_checkpoint(path)
    model = load_model(checkpoint, ModelConfig.from_hf(checkpoint.hf_config()), torch.float32, CPU)
    return all_logits(model, ids)


@pytest.mark.parametrize("variant", LOGITS["models"])
def test_logits_of_every_llama_are_those_of_the_reference(variant: str, tmp_path: Path) -> None:
    logits = logits_of(reference_variant(tmp_path / "model.gguf", variant), LOGITS["ids"])
    expected = LOGITS["models"][variant]
    assert logits.argmax(-1).tolist() == expected["argmax"]
    torch.testing.assert_close(logits[-1, :16], torch.tensor(expected["last_logits"]), rtol=0, atol=1e-3)

"""Granite: what its multipliers may be, and what a GGUF file without them means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.dense_models import CONFIGS
from support.gguf_variants import as_architecture

from minisgl.models import ModelConfig
from minisgl.models.checkpoint import open_checkpoint

MINIMAL: dict[str, Any] = CONFIGS["granite"].to_dict() | {"architectures": ["GraniteForCausalLM"]}


@pytest.mark.parametrize(
    "key", ["embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling"]
)
def test_a_multiplier_that_is_no_positive_number_is_refused_by_name(key: str):
    with pytest.raises(ValueError, match=f"{key}=0 of the model's config is not a number above 0"):
        ModelConfig.from_hf(MINIMAL | {key: 0})


def test_a_gguf_file_without_multipliers_divides_scores_by_the_root_of_a_head_and_scales_nothing_else(tmp_path: Path):
    checkpoint = open_checkpoint(as_architecture(tmp_path / "model.gguf", "granite"))
    config = ModelConfig.from_hf(checkpoint.hf_config())
    assert config.head_dim == 64
    assert config.attn_scale == 1 / 8
    assert (config.embedding_multiplier, config.residual_multiplier, config.logits_scaling) == (1.0, 1.0, 1.0)

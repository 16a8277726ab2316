"""Rotary positions: the layout and the numbers of transformers, however the positions lie in the batch."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from minisgl.kernel import apply_rotary
from minisgl.layers import Placement, RotaryEmbedding
from minisgl.models import RopeConfig

GENERATOR = torch.Generator().manual_seed(0)


def rotary(head_dim: int, dtype: torch.dtype = torch.float32) -> RotaryEmbedding:
    return RotaryEmbedding(RopeConfig().inverse_frequencies(head_dim, 8192), Placement(dtype, torch.device("cpu")))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 4e-2)])
@pytest.mark.parametrize("head_dim", [24, 64])
def test_heads_turn_as_in_transformers(head_dim: int, dtype: torch.dtype, tolerance: float):
    positions = torch.tensor([0, 1, 5, 4, 70000, 3])
    x = torch.randn(6, 3, head_dim, generator=GENERATOR).to(dtype)
    config = LlamaConfig(hidden_size=head_dim * 2, num_attention_heads=2, rope_theta=10000.0)
    cos, sin = LlamaRotaryEmbedding(config)(x, positions[None])
    expected, _ = apply_rotary_pos_emb(x.transpose(0, 1)[None], x.transpose(0, 1)[None], cos, sin)

    apply_rotary(x, *rotary(head_dim, dtype)(positions.int()), num_heads=3)

    torch.testing.assert_close(x, expected[0].transpose(0, 1), atol=tolerance, rtol=0)


def test_only_the_first_heads_turn():
    x = torch.randn(4, 3, 8, generator=GENERATOR)
    before = x.clone()
    apply_rotary(x, *rotary(8)(torch.arange(1, 5)), num_heads=2)
    assert not torch.equal(x[:, :2], before[:, :2])
    assert torch.equal(x[:, 2], before[:, 2])


def test_a_tokens_rotation_does_not_depend_on_its_batch_mates():
    together, alone = rotary(24)(torch.arange(37)), rotary(24)(torch.tensor([17]))
    assert torch.equal(together.cos[17], alone.cos[0])
    assert torch.equal(together.sin[17], alone.sin[0])


def test_dividing_the_frequencies_slows_the_turns():
    slowed = rotary(8)
    slowed.divide_frequencies("rope_freqs.weight", torch.tensor([1.0, 2.0, 4.0, 8.0]))
    assert torch.equal(slowed(torch.tensor([8])).cos[..., 3], rotary(8)(torch.tensor([1])).cos[..., 3])
    assert torch.equal(slowed(torch.tensor([8])).cos[..., 0], rotary(8)(torch.tensor([8])).cos[..., 0])

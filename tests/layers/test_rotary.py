"""Rotary positions: the layout and the numbers of transformers, however the positions lie in the batch."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb
from transformers.models.phi3.modeling_phi3 import apply_rotary_pos_emb as apply_in_part

from minisgl.kernel import apply_rotary
from minisgl.layers import Placement, RotaryEmbedding, turning_order
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
    for bad in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=r"'rope_freqs\.weight' holds what is no number above 0"):
            slowed.divide_frequencies("rope_freqs.weight", torch.tensor([1.0, 2.0, 4.0, bad]))
    slowed.divide_frequencies("rope_freqs.weight", torch.tensor([1.0, 2.0, 4.0, 8.0]))
    assert torch.equal(slowed(torch.tensor([8])).cos[..., 3], rotary(8)(torch.tensor([1])).cos[..., 3])
    assert torch.equal(slowed(torch.tensor([8])).cos[..., 0], rotary(8)(torch.tensor([8])).cos[..., 0])


@pytest.mark.parametrize("factor", [1.0, 1.3])
def test_the_first_elements_alone_turn_and_are_multiplied_as_in_transformers(factor: float):
    """head_dim 16, of which 12 turn."""
    inv_freq, positions = RopeConfig().inverse_frequencies(12, 8192), torch.arange(5)
    x, order = torch.randn(5, 3, 16, generator=GENERATOR), turning_order(1, 16, 12)
    angles = (positions[:, None] * inv_freq).repeat(1, 2)[None]
    expected, _ = apply_in_part(*(x.transpose(0, 1)[None],) * 2, angles.cos() * factor, angles.sin() * factor)

    ours, rotary = x[..., order], RotaryEmbedding(inv_freq, Placement(x.dtype, x.device), 16, factor)
    apply_rotary(ours, *rotary(positions), num_heads=3)

    torch.testing.assert_close(ours, expected[0].transpose(0, 1)[..., order], atol=1e-6, rtol=0)


def test_rows_of_every_head_are_reordered_alike():
    one = turning_order(1, 8, 4)
    assert one.tolist() == [0, 1, 4, 5, 2, 3, 6, 7]
    assert turning_order(2, 8, 4).tolist() == [*one.tolist(), *(one + 8).tolist()]


def test_standing_still_turns_nothing():
    x = torch.randn(4, 3, 8, generator=GENERATOR)
    before = x.clone()
    apply_rotary(x, *rotary(8)(torch.arange(1, 5)).standstill(), num_heads=3)
    assert torch.equal(x, before)

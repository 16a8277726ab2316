"""The least time that a workload can take on a GPU, from what must be read and multiplied: what figures stand beside.

A decode step reads every weight and every distinct key and value once; a prefill multiplies every token with every
weight of the layers. Bytes go at the speed of a large copy, products at that of a large bfloat16 matmul, and nothing
else costs anything. Weights, keys and values are bfloat16.

Shape letters: B requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from minisgl.models.config import ModelConfig

ITEM_BYTES = 2


@dataclass(frozen=True)
class Gpu:
    """bandwidth: bytes a second, read and written, of a large copy. flops: a second, of a large bfloat16 matmul."""

    name: str
    bandwidth: float
    flops: float


H200 = Gpu("NVIDIA H200", bandwidth=4.305e12, flops=760e12)


@dataclass(frozen=True)
class StepFloor:
    """Seconds of a decode step by kind of work."""

    attention: float
    gemm: float
    sampling: float

    @property
    def total(self) -> float:
        return self.attention + self.gemm + self.sampling


class Floors:
    """What one model can reach on one GPU."""

    def __init__(self, config: ModelConfig, gpu: Gpu = H200) -> None:
        self.config, self.gpu = config, gpu

    @property
    def layer_params(self) -> int:
        """Weights of all layers' matmuls; the vectors are left out."""
        config = self.config
        heads = 2 * config.num_qo_heads + 2 * config.num_kv_heads
        attention = config.hidden_size * heads * config.head_dim
        return config.num_layers * (attention + 3 * config.hidden_size * config.intermediate_size)

    @property
    def head_params(self) -> int:
        return self.config.vocab_size * self.config.hidden_size

    @property
    def weight_bytes(self) -> int:
        """What a decode step reads: layers and head; of the embedding only a few rows."""
        return ITEM_BYTES * (self.layer_params + self.head_params)

    @property
    def kv_bytes(self) -> int:
        """Of one token, in all layers."""
        config = self.config
        return ITEM_BYTES * 2 * config.num_layers * config.num_kv_heads * config.head_dim

    def prefill_s(self, lengths: Sequence[int], cached: Sequence[int] | None = None) -> float:
        """Seconds to compute prompts of these lengths, of which the first `cached` tokens are there already."""
        total, known = np.asarray(lengths, float), np.asarray(cached if cached is not None else np.zeros(len(lengths)))
        linear = 2 * self.layer_params * (total - known).sum() + 2 * self.head_params * len(lengths)
        pairs = ((total**2 - known**2) / 2).sum()
        attention = 4 * pairs * self.config.num_qo_heads * self.config.head_dim * self.config.num_layers
        return float(linear + attention) / self.gpu.flops

    def decode_step(self, batch_size: int, kv_tokens: int) -> StepFloor:
        """kv_tokens: distinct tokens whose keys and values the B requests read together."""
        flops = 2 * batch_size * (self.layer_params + self.head_params)
        return StepFloor(
            attention=kv_tokens * self.kv_bytes / self.gpu.bandwidth,
            gemm=max(self.weight_bytes / self.gpu.bandwidth, flops / self.gpu.flops),
            sampling=ITEM_BYTES * batch_size * self.config.vocab_size / self.gpu.bandwidth,
        )

    def decode_step_s(self, batch_size: int, kv_tokens: int) -> float:
        """Seconds of a step whose reads and products overlap perfectly; logits never leave the chip."""
        bytes_read = self.weight_bytes + kv_tokens * self.kv_bytes
        flops = 2 * batch_size * (self.layer_params + self.head_params)
        return max(bytes_read / self.gpu.bandwidth, flops / self.gpu.flops)

    def workload_s(self, prompt_lens: Sequence[int], output_lens: Sequence[int]) -> float:
        """Seconds for prompts that share nothing: all are computed, then all decode together until each has ended.

        The first token of each comes from its prefill.
        """
        prompts, outputs = np.asarray(prompt_lens), np.asarray(output_lens)
        seconds = self.prefill_s(prompt_lens)
        for step in range(1, int(outputs.max())):
            active = outputs > step
            seconds += self.decode_step_s(int(active.sum()), int((prompts[active] + step).sum()))
        return seconds


def least_prefill_tokens(prompts: Sequence[Sequence[int]]) -> int:
    """Tokens that must be computed if every prefix is computed once; each prompt's last one always is."""
    ordered, computed = sorted(map(list, prompts)), 0
    for previous, prompt in zip([[], *ordered], ordered, strict=False):
        computed += len(prompt) - min(common_len(previous, prompt), len(prompt) - 1)
    return computed


def common_len(a: Sequence[int], b: Sequence[int]) -> int:
    """Tokens in which both begin alike."""
    length = min(len(a), len(b))
    differ = np.flatnonzero(np.asarray(a[:length]) != np.asarray(b[:length]))
    return int(differ[0]) if len(differ) else length

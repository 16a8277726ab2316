"""Layers of real models that have windows, soft-caps or sinks: the shapes for tests of kernels on a GPU."""

from __future__ import annotations

from typing import NamedTuple


class WindowedLayer(NamedTuple):
    """As in the model's own config; group: query heads that share a KV head."""

    num_kv_heads: int
    group: int
    head_dim: int
    window: int
    softcap: float = 0.0
    has_sinks: bool = False

    @property
    def heads(self) -> dict[str, int]:
        return {"num_kv_heads": self.num_kv_heads, "group": self.group, "head_dim": self.head_dim}


LAYERS = {
    "gemma-2-9b": WindowedLayer(num_kv_heads=8, group=2, head_dim=256, window=4096, softcap=50.0),
    "gpt-oss-20b": WindowedLayer(num_kv_heads=8, group=8, head_dim=64, window=128, has_sinks=True),
    "mistral-7b": WindowedLayer(num_kv_heads=8, group=4, head_dim=128, window=4096),
}

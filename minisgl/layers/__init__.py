"""Building blocks of the models: each knows which part of which checkpoint tensor it holds."""

from minisgl.layers.attention import AttentionLayer
from minisgl.layers.base import Layer, Placement, WeightSlot
from minisgl.layers.embedding import LMHead, VocabParallelEmbedding
from minisgl.layers.linear import ColumnParallelLinear, FusedColumnParallelLinear, RowParallelLinear
from minisgl.layers.norm import RMSNorm, ShardedRMSNorm
from minisgl.layers.rotary import RotaryEmbedding, Rotation, turning_order

__all__ = [
    "AttentionLayer",
    "ColumnParallelLinear",
    "FusedColumnParallelLinear",
    "LMHead",
    "Layer",
    "Placement",
    "RMSNorm",
    "RotaryEmbedding",
    "Rotation",
    "RowParallelLinear",
    "ShardedRMSNorm",
    "VocabParallelEmbedding",
    "WeightSlot",
    "turning_order",
]

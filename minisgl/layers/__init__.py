"""Building blocks of the models: each knows which part of which checkpoint tensor it holds."""

from minisgl.layers.attention import AttentionLayer
from minisgl.layers.base import Layer, Placement, WeightSlot
from minisgl.layers.embedding import LMHead, VocabParallelEmbedding
from minisgl.layers.linear import ColumnParallelLinear, RowParallelLinear
from minisgl.layers.norm import RMSNorm
from minisgl.layers.rotary import RotaryEmbedding, Rotation

__all__ = [
    "AttentionLayer",
    "ColumnParallelLinear",
    "LMHead",
    "Layer",
    "Placement",
    "RMSNorm",
    "RotaryEmbedding",
    "Rotation",
    "RowParallelLinear",
    "VocabParallelEmbedding",
    "WeightSlot",
]

"""Layers of which every token uses a few experts out of many."""

from minisgl.kernel.torch_moe import ClampedGate
from minisgl.moe.experts import ExpertNames, Experts
from minisgl.moe.names import Weight, split_experts
from minisgl.moe.router import Router, Routing, WholeLinear

__all__ = ["ClampedGate", "ExpertNames", "Experts", "Router", "Routing", "Weight", "WholeLinear", "split_experts"]

"""Tensor parallelism: which rank this is, and the two collectives. With one rank nothing here does anything."""

from minisgl.distributed.collectives import all_gather, all_reduce
from minisgl.distributed.tp_info import SINGLE, TPInfo

__all__ = ["SINGLE", "TPInfo", "all_gather", "all_reduce"]

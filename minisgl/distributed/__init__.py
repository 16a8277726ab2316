"""Tensor parallelism: which rank this is, and the two collectives. With one rank nothing here does anything."""

from minisgl.distributed.collectives import all_gather, all_reduce
from minisgl.distributed.group import Meeting, RankGroup
from minisgl.distributed.tp_info import SINGLE, TPInfo

__all__ = ["SINGLE", "Meeting", "RankGroup", "TPInfo", "all_gather", "all_reduce"]

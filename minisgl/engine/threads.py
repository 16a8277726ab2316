"""How many threads compute on a CPU, and where."""

from __future__ import annotations

import os

import torch

from minisgl.utils.hardware import memory_nodes, physical_cores
from minisgl.utils.logging import get_logger

logger = get_logger(__name__)


def place_threads(rank: int = 0) -> None:
    """Have this thread, and those that it starts, compute on the cores of one memory node, with no more threads than
    there are. Every rank takes another node, while there are any. OMP_NUM_THREADS says otherwise: so many threads, on
    any core.

    A second thread of a core, or one for which the control group has no time, takes from the others what it gets. A
    core of another node reads weights and keys at a fraction of the speed, and the others wait for it.
    """
    if "OMP_NUM_THREADS" not in os.environ:
        nodes = memory_nodes()
        if len(nodes) > 1:
            os.sched_setaffinity(0, nodes[rank % len(nodes)])
            logger.info("computing on one of %d memory nodes", len(nodes))
        torch.set_num_threads(min(torch.get_num_threads(), physical_cores()))
    logger.info("computing with %d threads on %d cores", torch.get_num_threads(), physical_cores())

"""How many threads compute on a CPU, and where."""

from __future__ import annotations

import os

import torch

from minisgl.utils.hardware import memory_nodes, physical_cores
from minisgl.utils.logging import get_logger

logger = get_logger(__name__)


def place_threads(rank: int = 0, num_ranks: int = 1) -> None:
    """Have this thread, and those that it starts, compute on the cores of one memory node, with no more threads than
    there are. Every rank takes another node, while there are any. One process alone takes a node that has half of the
    cores, or else all. OMP_NUM_THREADS says otherwise: so many threads, on any core.

    A second thread of a core, or one for which the control group has no time, takes from the others what it gets. A
    core of another node reads weights and keys at a fraction of the speed, and the others wait for it.
    """
    if "OMP_NUM_THREADS" not in os.environ:
        nodes = memory_nodes()
        if len(nodes) > 1 and (num_ranks > 1 or 2 * len(nodes[0]) >= sum(map(len, nodes))):
            _keep_to(nodes[rank % len(nodes)])
        torch.set_num_threads(min(torch.get_num_threads(), physical_cores()))
    logger.info("computing with %d threads on %d cores", torch.get_num_threads(), physical_cores())


def _keep_to(cpus: frozenset[int]) -> None:
    try:
        os.sched_setaffinity(0, cpus)
        logger.info("computing on the %d CPUs of one memory node", len(cpus))
    except OSError as error:  # a container may forbid it
        logger.warning("computing on all memory nodes, for this process may not choose its CPUs: %s", error)

"""How many threads compute on a CPU."""

from __future__ import annotations

import os

import torch

from minisgl.utils.hardware import physical_cores
from minisgl.utils.logging import get_logger

logger = get_logger(__name__)


def limit_threads() -> None:
    """No more than there are cores, unless OMP_NUM_THREADS says how many: a second thread of a core, or one for which
    the control group has no time, takes from the others what it gets."""
    cores = physical_cores()
    if "OMP_NUM_THREADS" not in os.environ and torch.get_num_threads() > cores:
        torch.set_num_threads(cores)
    logger.info("computing with %d threads on %d cores", torch.get_num_threads(), cores)

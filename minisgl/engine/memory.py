"""How many pages the KV pool gets."""

from __future__ import annotations

import torch

from minisgl.utils.hardware import Hardware
from minisgl.utils.logging import get_logger

logger = get_logger(__name__)


def available_bytes(device: torch.device, hardware: Hardware) -> int:
    """Memory that this process can still take on `device`."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return hardware.available_bytes


def num_pages_for(budget: int, bytes_per_page: int, page_size: int, max_len: int) -> int:
    """Pages that `budget` bytes hold; ValueError when that is not even one page.

    max_len: tokens that all running requests together could ever use and still leave as much again for prefixes;
    more would only take memory away from others.
    """
    num_pages = min(budget // bytes_per_page, -(-max_len // page_size))
    if num_pages < 1:
        raise ValueError(
            f"the KV pool may take {budget:,} bytes, but one page of {page_size} tokens takes {bytes_per_page:,};"
            " raise memory_ratio or lower page_size"
        )
    return num_pages

"""Requests that wait, without a cache behind them."""

from __future__ import annotations

import numpy as np

from minisgl.core import SamplingParams
from minisgl.kvcache.types import Namespace, Watch
from minisgl.scheduler.request import Request
from minisgl.scheduler.waiting import Waiting


def make_waiting(
    number: int, length: int = 100, cached_len: int = 0, priority: int = 0, salt: str = "", returned: bool = False
) -> Waiting:
    prompt = np.arange(length, dtype=np.int32)
    request = Request(number, prompt, SamplingParams(), 0, frozenset(), length + 16, Namespace(salt), priority)
    request.arrival = number
    return Waiting(request, Watch(cached_len), returned)

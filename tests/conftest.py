"""What holds for every test: two threads, and no global context left over."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from minisgl.core import reset_global_ctx

torch.set_num_threads(2)


@pytest.fixture(autouse=True)
def _no_global_context() -> Iterator[None]:
    yield
    reset_global_ctx()

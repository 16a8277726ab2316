"""Where there is no GPU, Triton's interpreter runs the kernels, on tensors of the CPU; without Triton these are skipped.

The same tests marked gpu take the shapes of real models on a device.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest
import torch

HAS_GPU = torch.cuda.is_available()
if not HAS_GPU:
    os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported, which no test has done yet

if importlib.util.find_spec("triton") is None:
    collect_ignore_glob = ["test_*.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What a GPU would run compiled is not interpreted as well."""
    skip = pytest.mark.skip(reason="for the interpreter; there is a GPU")
    for item in items:
        if HAS_GPU and item.path.is_relative_to(Path(__file__).parent) and not item.get_closest_marker("gpu"):
            item.add_marker(skip)

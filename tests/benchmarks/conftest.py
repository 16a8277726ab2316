"""Benchmarks are scripts that import each other by name, as they do when one is run."""

from __future__ import annotations

import sys
from pathlib import Path

_BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path += [str(_BENCHMARKS / "gpu"), str(_BENCHMARKS)]

"""The GPU benchmarks are scripts that import each other by name, as they do when one is run."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks" / "gpu"))

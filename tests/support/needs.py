"""What a test cannot do without."""

from __future__ import annotations

from pathlib import Path

import pytest

from minisgl.kernel import cpu_ops

CPP_KERNELS = pytest.mark.skipif(not cpu_ops.in_use(), reason="no C++ kernels here, or MINISGL_KERNELS=torch")
FULL_DEVICE = pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full, which is a disk without room")

"""What a test cannot do without."""

from __future__ import annotations

import pytest

from minisgl.kernel import cpu_ops

CPP_KERNELS = pytest.mark.skipif(not cpu_ops.in_use(), reason="no C++ kernels here, or MINISGL_KERNELS=torch")

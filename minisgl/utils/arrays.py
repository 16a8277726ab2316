"""Arrays on the host that all parts hand each other: token ids, lengths, rows, pages."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int32Array = npt.NDArray[np.int32]
NO_IDS: Int32Array = np.empty(0, np.int32)

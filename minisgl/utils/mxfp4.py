"""MXFP4: numbers of 4 bits, of which 32 neighbours share a power of two.

Seen as groups of integers: twice a number is one from -12 to 12, so that it is a scale times a code, plus an offset.
Source: OCP Microscaling Formats (MX) 1.0.
"""

from __future__ import annotations

import numpy as np

_TWICE = np.array((0, 1, 2, 3, 4, 6, 8, 12))
ZERO = 12  # the code of 0
# By the four bits, the highest of which is the sign.
CODES = np.concatenate([ZERO + _TWICE, ZERO - _TWICE]).astype(np.uint8)
# Half the power of two, by its byte; exact in float32, if not a normal number in the first two.
SCALES = np.ldexp(np.float32(1), np.arange(256) - 128).astype(np.float32)

"""For how many times the memory that there is, hits of the prefix cache are told."""

from __future__ import annotations

CAPACITY_FACTORS = (0.5, 1.0, 2.0, 4.0, 8.0)

"""A number for each prefix of a prompt, all made at once: no tree is walked, and no token is kept.

A prefix's number is a sum, modulo 2**64, over its tokens: each token and its position are mixed to 64 bits. So the
numbers of all prefixes are one running sum. Two prefixes that happen to occur have the same number about once in 2**64.
The mixing is no secret: whoever tries may find two that do. So nothing but statistics may go by these numbers.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from minisgl.kvcache.base import Namespace
from minisgl.utils.arrays import Int32Array

Names = npt.NDArray[np.uint64]

# The odd constants and shifts of SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators").
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def prefix_names(ids: Int32Array, namespace: Namespace, first: int, step: int) -> Names:
    """The numbers of the prefixes of `ids` [T] that end after first, first + step, first + 2 * step ... tokens."""
    if len(ids) < first:
        return np.empty(0, np.uint64)
    keys = ids.astype(np.uint64)
    keys <<= np.uint64(32)
    keys |= np.arange(len(ids), dtype=np.uint64)
    keys *= _MIX_1
    keys ^= keys >> np.uint64(32)
    keys *= _MIX_2
    return _mixed(np.cumsum(keys, out=keys)[first - 1 :: step] + _seed(namespace))


def _mixed(values: Names) -> Names:
    """Each bit depends on all, so that some of them can choose a sample."""
    values ^= values >> np.uint64(30)
    values *= _MIX_1
    values ^= values >> np.uint64(27)
    values *= _MIX_2
    values ^= values >> np.uint64(31)
    return values


@lru_cache(maxsize=1024)
def _seed(namespace: Namespace) -> np.uint64:
    """The same in every run; equal texts in other parts of a namespace give another one."""
    parts = [text.encode("utf-8", "surrogatepass") for text in namespace]
    digest = blake2b(b"".join(len(part).to_bytes(8, "little") + part for part in parts), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little"))

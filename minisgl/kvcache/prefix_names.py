"""A number for each prefix of a prompt, all made at once: no tree is walked, and no token is kept.

A prefix's number is a sum, modulo 2**64, of its tokens, each times a random number of its position: so the numbers of
all prefixes are one running sum, and two prefixes have the same number about once in 2**64 (Carter and Wegman,
"Universal classes of hash functions", 1979). The factors are no secret: whoever tries may find two that do. So nothing
but statistics may go by these numbers.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from minisgl.kvcache.types import Namespace
from minisgl.utils.arrays import Int32Array

Names = npt.NDArray[np.uint64]
SHORT = 4096  # tokens for which there are always factors


def prefix_names(ids: Int32Array, namespace: Namespace, first: int, step: int) -> Names:
    """The numbers of the prefixes of `ids` [T] that end after first, first + step, first + 2 * step ... tokens."""
    length = len(ids)
    factors, sums = _factors(max(SHORT, 1 << (length - 1).bit_length()))
    names = np.multiply(ids, factors[:length], dtype=np.uint64, casting="unsafe")
    np.cumsum(names, out=names)
    # As if each token were one more, so that zeros count too.
    return names[first - 1 :: step] + sums[first - 1 : length : step] + _seed(namespace)


@lru_cache(maxsize=16)  # powers of two: all of them take twice what the largest takes
def _factors(num: int) -> tuple[Names, Names]:
    """Odd random numbers, the same in every run, and their running sums."""
    factors = np.random.default_rng(0).integers(0, 2**64, num, np.uint64) | np.uint64(1)
    return factors, np.cumsum(factors)


@lru_cache(maxsize=1024)
def _seed(namespace: Namespace) -> np.uint64:
    """The same in every run; equal texts in other parts of a namespace give another one."""
    parts = [text.encode("utf-8", "surrogatepass") for text in namespace]
    digest = blake2b(b"".join(len(part).to_bytes(8, "little") + part for part in parts), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little"))

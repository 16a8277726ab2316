"""What `bench_radix.py` aims at, and what peers took where they cannot be measured.

REFERENCE: microseconds of CPU time of one thread, measured once on a machine that compared 100,000 equal tokens in
REFERENCE_COMPARE_US; to be scaled by that time.
"""

from __future__ import annotations

from dataclasses import dataclass

REFERENCE_COMPARE_US = 8.7

CPP_TREE = "SGLang C++"
TREE_PEERS = ("SGLang Rust", CPP_TREE, "SGLang Python")


@dataclass(frozen=True)
class Target:
    """Ours may take at most `ratio` times as long as `peer`, or as the best of the trees where none is named.

    bytes_page_1, bytes_page_16: for memory, what a cached token may take. memcmp: times one plain comparison.
    """

    ratio: float | None = None
    peer: str | None = None
    memcmp: float | None = None
    bytes_page_1: float | None = None
    bytes_page_16: float | None = None


CHAIN = Target(ratio=0.5)
TARGETS = {
    "W1 match 100,000 tokens, 1 node": Target(ratio=0.35, memcmp=1.8),
    "W1 match 100,000 tokens, 100 nodes, grown": CHAIN,
    "W1 match 100,000 tokens, 100 nodes, branches": CHAIN,
    "W2 a turn of a chat": Target(ratio=0.4),
    "W2 match, 99th percentile": Target(ratio=0.5),
    "W2 bytes a cached token": Target(bytes_page_1=12, bytes_page_16=7),
    "W3 evict 1,024 tokens of 10,000 leaves": Target(ratio=0.12),
    "W3 evict 1,024 tokens of 100,000 leaves": Target(ratio=0.06),
    "W3 evict 1,024 tokens of 300,000 leaves": Target(ratio=0.035),
    "W4 look-up among 262,144 leaves": Target(ratio=1.2, peer=CPP_TREE),
    "W5 a request of 500-4,000 tokens": Target(ratio=0.23),
    "W5s a request of 50-400 tokens": Target(ratio=0.28),
}
# An eviction from 300,000 leaves may take so many times as long as from 10,000; from 1,000,000 likewise.
W3_GROWTH = {"300,000": 4.0, "1,000,000": 6.0}

_PAGE_1_AND_16 = {
    "W1 match 100,000 tokens, 1 node": ((85, 1620, 102), (85, 1685, 122)),
    "W1 match 100,000 tokens, 100 nodes, grown": ((159, 1746, 2897), (119, 2685, 2978)),
}
_PAGE_1 = {
    "W2 a turn of a chat": (81, 163, 160),
    "W3 evict 1,024 tokens of 10,000 leaves": (600, 550, 8_300),
    "W3 evict 1,024 tokens of 100,000 leaves": (4_900, 24_900, 222_000),
    "W3 evict 1,024 tokens of 300,000 leaves": (10_000, 114_100, None),
    "W4 look-up among 262,144 leaves": (6.8, 4.0, 21),
    "W5 a request of 500-4,000 tokens": (82, 158, 102),
    "W5s a request of 50-400 tokens": (61.7, 79.4, 667),
}
_BYTES = {"W2 bytes a cached token": (25, 93, 24)}


def reference(what: str, page_size: int, scale: float) -> dict[str, float]:
    """What each tree took on the reference machine, scaled; empty where nothing was measured."""
    figures = _PAGE_1_AND_16[what][page_size > 1] if what in _PAGE_1_AND_16 and page_size in (1, 16) else ()
    if page_size == 1:
        figures = figures or _PAGE_1.get(what, ())
        if what in _BYTES:
            figures, scale = _BYTES[what], 1.0
    return {peer: us * scale for peer, us in zip(TREE_PEERS, figures, strict=False) if us is not None}

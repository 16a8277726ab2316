"""Equal prefixes that arrive together are computed once: who should wait for whom."""

from __future__ import annotations

from collections.abc import Iterable

from minisgl.kvcache.slots import common_prefix_len
from minisgl.scheduler.request import Request
from minisgl.utils.math import align_down

# Tokens worth waiting a step for; or half of what is left, if that is less. Without such a bound, one common first
# token (BOS, say) would make cold prompts run one after the other.
WORTH_A_STEP = 32


def find_leader(
    request: Request, prefilling: Iterable[Request], matched_len: int, page_size: int
) -> tuple[Request | None, int]:
    """The request that is computing most of this one's prefix, if waiting a step for it spares enough.

    matched_len: tokens that are cached already. With it, how far it is worth waiting for: whole pages, at most all
    tokens but the last.
    """
    prompt = request.ids(request.prompt_len)[:-1]
    leader, leader_len = None, matched_len
    for other in prefilling:
        shared = align_down(common_prefix_len(prompt, other.ids(other.prompt_len)), page_size)
        if shared > leader_len and other.committed_len < shared:
            leader, leader_len = other, shared
    spared, left = leader_len - matched_len, request.prompt_len - matched_len
    return (leader, leader_len) if spared >= WORTH_A_STEP or 2 * spared >= left else (None, 0)

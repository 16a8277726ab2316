"""Why the tokens of a prompt are in the cache, or are not: exact, and as cheap as the end of a match."""

from __future__ import annotations

import time
from bisect import bisect_left
from itertools import islice
from typing import NamedTuple, cast

from minisgl.core import Explanation
from minisgl.kvcache.ghost import Ghost, Place, fork_at
from minisgl.kvcache.ghost_list import GhostList
from minisgl.kvcache.radix_forest import RadixForest
from minisgl.kvcache.radix_node import TOKEN_BYTES, RadixNode
from minisgl.kvcache.radix_walk import seek
from minisgl.kvcache.slots import Tokens
from minisgl.kvcache.types import Namespace
from minisgl.utils.math import align_down

MAX_BRANCHES = 16  # of those that go on from where a prompt's whole pages end, the youngest: the closest is looked for
MAX_BRANCH_LEN = 8  # tokens

Branches = dict[bytes, RadixNode | Ghost]  # by first page


class Closest(NamedTuple):
    """left_at: tokens in common with it, in all. branch: what it has from there on."""

    left_at: int
    branch: tuple[int, ...]


class Explainer:
    """Looks at the trees and the ghosts of a cache, and changes neither."""

    def __init__(self, forest: RadixForest, ghosts: GhostList, page_size: int) -> None:
        self._forest = forest
        self._ghosts = ghosts
        self._page_size = page_size
        self._page_bytes = page_size * TOKEN_BYTES
        self._longest_bytes = (page_size + MAX_BRANCH_LEN) * TOKEN_BYTES  # that is looked at of what goes on

    def explain(self, tokens: Tokens, namespace: Namespace, node: RadixNode | None, matched_len: int) -> Explanation:
        """Of a prompt, as bytes. node: at the end of which `matched_len` of its tokens match; None: nowhere."""
        if not tokens:
            return Explanation()
        num_tokens = len(tokens) // TOKEN_BYTES
        usable_len = align_down(num_tokens - 1, self._page_size)
        whole_pages = tokens[: align_down(len(tokens), self._page_bytes)]
        live, known = self._ghosts.end_of_match(node, namespace, whole_pages, matched_len)
        known_len = known.end // TOKEN_BYTES
        hit_len, found_len = min(live.end // TOKEN_BYTES, usable_len), min(known_len, usable_len)
        others_len = self._known_to_others(whole_pages, namespace) if known.end < len(whole_pages) else 0
        reached = max(found_len, min(others_len, usable_len))
        closest = self._closest(live, known, tokens)
        if max(known_len, others_len) > usable_len:  # in whole pages, so it is all of it
            below_page, last_token = 0, num_tokens - usable_len
        else:
            below_page = max(0, closest.left_at - reached)
            last_token = int(closest.left_at == num_tokens)
            below_page -= last_token
        gone = known.first if found_len > hit_len else None
        return Explanation(
            hit=hit_len,
            evicted=found_len - hit_len,
            other_namespace=reached - found_len,
            below_page=below_page,
            last_token=last_token,
            never_seen=num_tokens - reached - below_page - last_token,
            left_at=closest.left_at,
            branch=closest.branch,
            evicted_s=time.monotonic() - gone.gone_at if gone else None,
            evicted_tokens=(self._ghosts.gone_bytes - gone.gone_bytes) // TOKEN_BYTES if gone else None,
        )

    def _known_to_others(self, whole_pages: Tokens, namespace: Namespace) -> int:
        """How many of the tokens are cached in another namespace, one of the latest with the same first page."""
        longest = 0
        for other in self._ghosts.first_pages.find(bytes(whole_pages[: self._page_bytes])):
            root = self._forest.find(other) if other != namespace else None
            if root is not None:
                longest = max(longest, seek(root, whole_pages, 0, self._page_size)[1])
        return longest

    def _closest(self, live: Place, known: Place, tokens: Tokens) -> Closest:
        """Of what goes on where the whole pages of `tokens` that are known end."""
        wanted = bytes(tokens[known.end : known.end + self._page_bytes])
        if not wanted:
            return Closest(known.end // TOKEN_BYTES, ())
        owner = known.owner if known.first else live.owner
        best = owner.token_bytes[known.at : known.at + self._longest_bytes] if owner is not None else b""
        num_bytes = _common_bytes(best, wanted)
        for branches in _branches(live, known):
            for page in self._nearest(branches, wanted):
                common = _common_bytes(page, wanted)
                if common > num_bytes or common == num_bytes == len(best):  # of equals, one that goes on
                    num_bytes, best = common, branches[page].token_bytes
        left_at = (known.end + num_bytes) // TOKEN_BYTES
        if left_at in (0, len(tokens) // TOKEN_BYTES):  # nothing comes close, or nothing is new
            return Closest(left_at, ())
        branch = best[num_bytes : num_bytes + MAX_BRANCH_LEN * TOKEN_BYTES]
        return Closest(left_at, tuple(memoryview(branch).cast("i")))

    def _nearest(self, branches: Branches, wanted: bytes) -> list[bytes]:
        """The pages and tails before and after it in order of their bytes: one of these has most in common with it."""
        if self._page_size == 1:  # none has anything
            return [next(reversed(branches))]
        pages = sorted(islice(reversed(branches), MAX_BRANCHES))
        at = bisect_left(pages, wanted)
        return pages[max(0, at - 1) : at + 1]


def _branches(live: Place, known: Place) -> list[Branches]:
    """What leaves there: what is cached, and what was; none of them empty."""
    found, node = [], live.owner
    if known.first is None and isinstance(node, RadixNode) and live.at == len(node.token_bytes) and node.children:
        found.append(cast(Branches, node.children))
    fork = fork_at(known.owner, known.at) if known.owner is not None else None
    if fork is not None:
        found.append(cast(Branches, fork.ghosts))
    return found


def _common_bytes(run: bytes, wanted: bytes) -> int:
    """How many bytes, of whole tokens, they have in common at the start; at most all of `wanted`."""
    if run[:TOKEN_BYTES] != wanted[:TOKEN_BYTES]:
        return 0
    length = min(len(run), len(wanted))
    differing = int.from_bytes(run[:length], "little") ^ int.from_bytes(wanted[:length], "little")
    if not differing:
        return length
    return align_down(((differing & -differing).bit_length() - 1) // 8, TOKEN_BYTES)

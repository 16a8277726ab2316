"""What the layers of one forward pass share: which slots each token writes and reads.

Every token's context is read in up to three disjoint parts, joined by log-sum-exp:

    0 ........... shared ........... cached_len ........... device_len
    |  pages that other rows   |  the rest of what  |  the tokens of this  |
    |  of the batch read too   |  was computed      |  batch, causally     |
        PrefixPart, once a group     PrefixPart            ExtendPart
                               |------- PagedPart or DecodePart ----------|   a row with one new token

Shape letters: T tokens in the batch, B rows of a part, Hq query heads, D head dim.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from minisgl.attention.index import Index


@dataclass(frozen=True, slots=True, eq=False)
class PrefixPart:
    """Tokens that see all of `slots`. tokens: rows of q; slots: rows of the pool's layer."""

    tokens: Index
    slots: Index


@dataclass(frozen=True, slots=True, eq=False)
class ExtendPart:
    """Requests with equally many new tokens, which see one another causally. tokens: [num_reqs * T / num_reqs]."""

    tokens: Index
    num_reqs: int


@dataclass(frozen=True, slots=True, eq=False)
class PagedPart:
    """All requests with one new token, where a kernel reads the pool by slot.

    slots: int32, those of every request one after the other; indptr: [B + 1] int32, where each one's begin.
    o [B, Hq * D], lse [B, Hq] float32: where every layer's result goes in turn.
    """

    tokens: Index
    slots: torch.Tensor
    indptr: torch.Tensor
    o: torch.Tensor
    lse: torch.Tensor


@dataclass(frozen=True, slots=True, eq=False)
class DecodePart:
    """Some requests with one new token, where no kernel does. slots: [B * padded length] of the pool, row by row.

    mask: float32 [B, 1, 1, padded length], -inf on padding (which repeats the row's last slot, for an unwritten slot
    may hold NaN); None where nothing is padded.
    """

    tokens: Index
    slots: Index
    mask: torch.Tensor | None


@dataclass(frozen=True, slots=True, eq=False)
class TorchAttnMetadata:
    """num_gathered: most slots that any part copies together."""

    prefixes: tuple[PrefixPart, ...]
    extends: tuple[ExtendPart, ...]
    paged: PagedPart | None
    decodes: tuple[DecodePart, ...]
    num_gathered: int

    @property
    def only_paged(self) -> PagedPart | None:
        """The paged part if it is all there is."""
        return None if self.prefixes or self.extends else self.paged

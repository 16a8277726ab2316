"""What the layers of one forward pass share: which slots each token writes and reads.

Every token's context is read in up to three disjoint parts, joined by log-sum-exp:

    0 ........... shared ........... cached_len ........... device_len
    |  pages that other rows   |  the rest of what  |  the tokens of this  |
    |  of the batch read too   |  was computed      |  batch, causally     |
        PrefixPart, once a group     PrefixPart            ExtendPart
                               |--------------- DecodePart ---------------|   a row with one new token

In a layer with a window, a row that is longer than the window is read in one part, from where the window begins:

    0 ............ begin ................................... device_len
    | seen by none   |-------------------- DecodePart ------------------|   a row with one new token
                     |------------------- BandParts --------------------|   a row with several

Shape letters: T tokens in the batch, B rows of a part, Hq query heads, D head dim, N keys.
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
class BandPart:
    """Some new tokens of one row, each of which sees the window that ends with it. slots: of all that any of them sees.

    mask: float32 [1, 1, T, N], -inf where a token does not see a slot.
    """

    tokens: slice
    slots: Index
    mask: torch.Tensor


@dataclass(frozen=True, slots=True, eq=False)
class DecodePart:
    """Some requests with one new token. slots: [B * padded length] of the pool, row by row.

    mask: float32 [B, 1, 1, padded length], -inf on padding (which repeats the row's last slot, for an unwritten slot
    may hold NaN); None where nothing is padded.
    """

    tokens: Index
    slots: Index
    mask: torch.Tensor | None


@dataclass(frozen=True, slots=True, eq=False)
class LayerParts:
    """All that a layer reads. num_gathered: most slots that any part copies together."""

    prefixes: tuple[PrefixPart, ...]
    extends: tuple[ExtendPart, ...]
    bands: tuple[BandPart, ...]
    decodes: tuple[DecodePart, ...]
    num_gathered: int


TorchAttnMetadata = tuple[LayerParts, ...]
"""By layer; those that see equally far have the same."""

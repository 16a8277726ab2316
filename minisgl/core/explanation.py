"""Why a prompt's tokens had to be computed, or did not have to be."""

from __future__ import annotations

from typing import Any, Literal, get_args

import msgspec

Cause = Literal[
    "hit", "joined", "evicted", "below_page", "other_namespace", "last_token", "never_seen", "not_looked_up"
]
CAUSES: tuple[Cause, ...] = get_args(Cause)


class Explanation(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Of one prompt, as it was admitted: its tokens by cause, which add up to its length.

    hit: cached from its arrival on. joined: cached when it was admitted, computed by others while it waited.
    evicted: had been cached, and went for want of pages. below_page: known too, or known as far as can be told, but
    they fill no whole page. other_namespace: cached under another salt. last_token: the last one is always computed,
    with its page. never_seen: nothing is known of them. not_looked_up: log-probabilities of the prompt were asked for,
    or the cache keeps nothing.

    left_at: how many tokens the prompt has in common with what came closest to it, cached or evicted, in its own
    namespace: the position of the first token that is new there; the prompt's length if none is. branch: the tokens, a
    few, that what came closest has from there on; none if it ends there.
    evicted_s, evicted_tokens: how long ago the first of the evicted ones went, in seconds and in tokens evicted since.
    """

    hit: int = 0
    joined: int = 0
    evicted: int = 0
    below_page: int = 0
    other_namespace: int = 0
    last_token: int = 0
    never_seen: int = 0
    not_looked_up: int = 0
    left_at: int = 0
    branch: tuple[int, ...] = ()
    evicted_s: float | None = None
    evicted_tokens: int | None = None

    def facts(self) -> dict[str, Any]:
        """The fields by name, as plain data; `Explanation(**facts)` is equal."""
        return msgspec.structs.asdict(self)

    @property
    def causes(self) -> dict[Cause, int]:
        """Tokens by cause, those of none included."""
        return {cause: getattr(self, cause) for cause in CAUSES}

"""An explanation with the prompt that it is of: which of its tokens it speaks of, and what they say."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from minisgl.core import Cause, Explanation
from minisgl.tokenizer import Tokenizer, text_around, text_pieces
from minisgl.utils.arrays import Int32Array

REACH = 8  # tokens that are shown on either side of a position
# As they follow each other in a prompt.
IN_ORDER: tuple[Cause, ...] = (
    "hit", "joined", "evicted", "other_namespace", "below_page", "never_seen", "not_looked_up", "last_token"
)  # fmt: skip


class Segment(NamedTuple):
    """Tokens in a row that have one cause. text: theirs, but for a character that ends in the next segment."""

    cause: Cause
    tokens: int
    text: str


class Around(NamedTuple):
    """What a prompt says before and after the position at which it left what came closest to it.

    branch: what the other one has there; "" if it ends there, or is not known.
    """

    before: str
    after: str
    branch: str = ""

    @property
    def same_text(self) -> bool:
        """Whether both say the same as far as either is given: then they part only in how it was cut into tokens."""
        shorter, longer = sorted((self.after, self.branch), key=len)
        return shorter != "" and longer.startswith(shorter)


class Explained(NamedTuple):
    """A prompt's tokens, and why they would be computed, or not."""

    input_ids: Int32Array
    explanation: Explanation

    def segments(self, tokenizer: Tokenizer) -> list[Segment]:
        """All of the prompt, by cause. The texts joined are its text, special tokens included."""
        parts = list(_parts(self.explanation))
        ends = accumulate(tokens for _, tokens in parts)
        texts = text_pieces(tokenizer, self.input_ids, ends)
        return [Segment(*part, text) for part, text in zip(parts, texts, strict=True)]

    def around(self, tokenizer: Tokenizer) -> Around | None:
        """None if it left nothing: all of it is known, or nothing was looked up."""
        window = Window.of(self)
        return None if window is None else window.around(tokenizer)


class Window(NamedTuple):
    """A few tokens of a prompt around a position: all that need be kept to show them later. at: it, within `ids`."""

    ids: tuple[int, ...]
    at: int
    branch: tuple[int, ...]

    @classmethod
    def of(cls, explained: Explained) -> Window | None:
        """Around where it left what came closest; None if it left nothing, or nothing was looked up."""
        ids, left_at = explained.input_ids, explained.explanation.left_at
        if left_at >= len(ids) or explained.explanation.not_looked_up:
            return None
        begin = max(0, left_at - REACH - 4)  # the first character shown may begin before
        return cls(tuple(ids[begin : left_at + REACH].tolist()), left_at - begin, explained.explanation.branch)

    def around(self, tokenizer: Tokenizer) -> Around:
        before, after = text_around(tokenizer, self.ids, self.at, REACH)
        if not self.branch:
            return Around(before, after)
        _, branch = text_around(tokenizer, (*self.ids[: self.at], *self.branch), self.at, REACH)
        return Around(before, after, branch)


def _parts(explanation: Explanation) -> Iterator[tuple[Cause, int]]:
    causes = explanation.causes
    return ((cause, causes[cause]) for cause in IN_ORDER if causes[cause])

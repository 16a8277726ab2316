"""The text of a part of a prompt's tokens, in which no character is cut in two."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from minisgl.tokenizer.detokenize import IncrementalDetokenizer
from minisgl.tokenizer.token_bytes import TokenBytes
from minisgl.tokenizer.tokenizer import Tokenizer
from minisgl.utils.arrays import Int32Array

MAX_TOKENS_A_CHARACTER = 4  # a byte each


def text_pieces(tokenizer: Tokenizer, ids: Int32Array, ends: Iterable[int]) -> list[str]:
    """The texts up to these positions, each from the one before; the last is the end. Special tokens are shown.

    Joined they are the text of all. A character whose tokens lie on both sides of an end is in the later piece.
    """
    detokenizer = IncrementalDetokenizer(tokenizer, skip_special_tokens=False)
    pieces, begin = [], 0
    for end in ends:
        pieces.append(detokenizer.push(ids[begin:end].tolist()))
        begin = end
    if pieces:
        pieces[-1] += detokenizer.flush()
    return pieces


def text_around(tokenizer: Tokenizer, ids: Sequence[int], at: int, reach: int) -> tuple[str, str]:
    """What stands before position `at` and from there on: about `reach` tokens each, whole characters only."""
    begin = _character_start(tokenizer, ids, max(0, at - reach))
    detokenizer = IncrementalDetokenizer(tokenizer, skip_special_tokens=False)
    if begin and not detokenizer.push(ids[begin - 1 : begin]):  # or a space in front of the first word would go
        detokenizer = IncrementalDetokenizer(tokenizer, skip_special_tokens=False)
    before = detokenizer.push(ids[begin:at])
    return before, detokenizer.push(ids[at : at + reach])


def _character_start(tokenizer: Tokenizer, ids: Sequence[int], begin: int) -> int:
    """`begin`, or where the character starts of which a part is there."""
    bytes_of, first = TokenBytes(tokenizer), max(0, begin - MAX_TOKENS_A_CHARACTER)
    while first < begin < len(ids) and _continues(bytes_of(ids[begin])):
        begin -= 1
    return begin


def _continues(token: bytes) -> bool:
    """Whether its first byte belongs to a character that began before (UTF-8)."""
    return token[:1] != b"" and token[0] & 0xC0 == 0x80

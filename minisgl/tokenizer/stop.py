"""Looks for stop strings in text that comes in pieces (Knuth, Morris, Pratt 1977, one automaton a string)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from minisgl.core.sampling_params import MAX_STOP_STRINGS


class StopStrings:
    """Passes text through up to the first stop string; holds back the end that may still become one.

    When a piece completes several, the one that begins earliest cuts the text. stops: none of them empty.
    stopped: whether one was found; nothing must be pushed afterwards.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._automata = [_Automaton(stop) for stop in stops]
        self._held = ""
        self.stopped = False

    def __bool__(self) -> bool:
        """Whether there is any to be found."""
        return bool(self._automata)

    def push(self, piece: str, armed: bool = True) -> str:
        """The text that is in no stop string. Unarmed, a stop string that ends within `piece` does not count."""
        assert not self.stopped
        if not self._automata:
            return piece
        text = self._held + piece
        ends = [automaton.advance(piece, armed) for automaton in self._automata]
        starts = [
            len(self._held) + end - len(automaton.word)
            for automaton, end in zip(self._automata, ends, strict=True)
            if end is not None
        ]
        self.stopped = bool(starts)
        keep = max((automaton.matched for automaton in self._automata), default=0)
        cut = min(starts) if starts else len(text) - keep
        self._held = "" if starts else text[cut:]
        return text[:cut]

    def flush(self) -> str:
        """The text that was held back, once no more comes."""
        held, self._held = self._held, ""
        return held


class _Automaton:
    """matched: how many characters at the end of the text so far are the beginning of `word`."""

    def __init__(self, word: str) -> None:
        assert word, "an empty stop string"
        self.word = word
        self.matched = 0
        self._borders = _borders_of(word)

    def _next(self, matched: int, char: str) -> int:
        return _longer(self.word, self._borders, matched, char)

    def advance(self, piece: str, armed: bool) -> int | None:
        """How many characters of `piece` complete the word for the first time; None if none do, or unarmed."""
        for count, char in enumerate(piece, 1):
            self.matched = self._next(self.matched, char)
            if self.matched < len(self.word):
                continue
            if armed:
                return count
            self.matched = self._borders[-1]
        return None


@lru_cache(maxsize=4 * MAX_STOP_STRINGS)  # all choices of a prompt, and all its neighbours in a batch, have the same
def _borders_of(word: str) -> list[int]:
    """For each beginning of the word, the length of the longest shorter one that it ends with."""
    borders = [0]
    for char in word[1:]:
        borders.append(_longer(word, borders, borders[-1], char))
    return borders


def _longer(word: str, borders: Sequence[int], matched: int, char: str) -> int:
    """How much of the word is matched with one more character."""
    while matched and word[matched] != char:
        matched = borders[matched - 1]
    return matched + (word[matched] == char)

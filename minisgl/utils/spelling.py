"""Misspelt names: which known one was probably meant."""

from __future__ import annotations

from collections.abc import Collection, Iterable

MAX_EDITS = 2


def likely(name: str, known: Iterable[str]) -> str | None:
    """The known name that this one is a slip of the pen for; None if there is none, or if it is known itself.

    Two letters may be wrong, missing or too many, one in names of four or five letters, none in shorter ones: `n` and
    `id` are two letters apart. Neighbours that changed places count as one, capitals as small letters.
    """
    best, fewest = None, MAX_EDITS + 1
    for other in known:
        if other == name:
            return None
        most = min(_allowed(name, other), fewest - 1)
        if most and abs(len(name) - len(other)) <= most and (edits := num_edits(name, other, most)) <= most:
            best, fewest = other, edits
    return best


def nearest(name: str, known: Collection[str]) -> str | None:
    """The most similar known name, for a hint; None if all are quite different."""
    edits = {other: num_edits(name, other, max(MAX_EDITS, len(name) // 2)) for other in known}
    best = min(edits, key=edits.__getitem__, default=None)
    return best if best is not None and edits[best] <= max(1, len(name) // 2) else None


def _allowed(name: str, other: str) -> int:
    shorter = min(len(name), len(other))
    return 0 if len(other) < 4 or shorter < 3 else 1 if len(other) < 6 else MAX_EDITS


def num_edits(a: str, b: str, most: int) -> int:
    """Letters to insert, delete, replace or swap with a neighbour to make one of the other; `most` + 1 for more."""
    a, b = a.lower(), b.lower()
    if abs(len(a) - len(b)) > most or len(set(a) ^ set(b)) > 2 * most:
        return most + 1
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, letter in enumerate(a, 1):
        last, row, two_before = row, [i], before
        for j, other in enumerate(b, 1):
            edits = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (letter != other))
            if i > 1 and j > 1 and letter == b[j - 2] and a[i - 2] == other:
                edits = min(edits, two_before[j - 2] + 1)
            row.append(edits)
        if min(row) > most + 1:
            return most + 1
        before = last
    return min(row[-1], most + 1)

"""A JSON text's structure, counted before anything of it becomes an object.

The decoder keeps the interpreter to itself until it is through, which for the worst body of 16 MB is seconds. Counting
lets go of it every few hundred microseconds (NumPy on slices), is exact up to the first fault of the text, which is as
far as the decoder comes, and bounds what the decoder then costs: about a tenth of a second at most, all bounds reached.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MAX_VALUES = 2**20  # 40 ms: numbers, mostly
MAX_PARTS = 2**17  # 30 ms, as keys of one object
MAX_FRACTIONS = 2**16  # 80 ms, with hundreds of digits each
MAX_EXPONENTS = 2**10  # 30 ms: the decoder takes 28 us for 1.7976931348623157e308
MAX_DIGITS = 128  # reading a number costs the square of its digits
CHEAP = 2**16  # bytes that the decoder reads in some milliseconds, whatever they are, but for exponents
CHEAP_EXPONENTS = 128
_SLICE = 2**18
_QUOTE, _BACKSLASH, _COMMA, _POINT, _LIST, _E = b'"\\,.[e'
_OPEN, _CLOSE, _LOWER = ord("{"), ord("}"), 0x20  # [ and ] with this bit are { and }
_EXPONENT = re.compile(rb"[0-9][eE]")
_KEY = re.compile(rb'"([^"\\]{1,64})"\s*:\s*\Z')

Bytes = NDArray[np.uint8]
Mask = NDArray[np.bool_]


class JsonSizeError(ValueError):
    """A text that would take the decoder too long. field: which is most of it, "" where none is."""

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True, slots=True)
class Outline:
    """Counts outside strings; of a text that is over a bound, as far as it was looked at.

    num_values: of all kinds, at most one too few. num_parts: texts, keys, lists and objects. num_fractions,
    num_exponents: numbers that have one. has_long_number: one of at least MAX_DIGITS digits, maybe twice as many.
    longest: numbers in the longest list of nothing else that is a field of the whole; field: its name, "" if unknown.
    """

    num_values: int
    num_parts: int
    num_fractions: int
    num_exponents: int
    has_long_number: bool
    longest: int
    field: str

    @classmethod
    def of(cls, raw: bytes) -> Outline:
        scan = _Scan()
        for start in range(0, len(raw), _SLICE):
            scan.add(np.frombuffer(raw, np.uint8, min(_SLICE, len(raw) - start), start))
            if scan.num_quotes > 2 * MAX_PARTS or scan.num_opens > MAX_PARTS:
                break
        return cls(
            scan.num_commas + scan.num_opens,
            scan.num_quotes // 2 + scan.num_opens,
            scan.num_points,
            scan.num_exponents,
            scan.has_long_number,
            scan.longest + 1 if scan.longest else 0,
            _key_before(raw, scan.longest_at) if scan.longest else "",
        )

    def plus(self, other: Outline) -> Outline:
        """Both as one text."""
        larger = max(self, other, key=lambda outline: outline.longest)
        return Outline(
            self.num_values + other.num_values,
            self.num_parts + other.num_parts,
            self.num_fractions + other.num_fractions,
            self.num_exponents + other.num_exponents,
            self.has_long_number or other.has_long_number,
            larger.longest,
            larger.field,
        )

    def check(self) -> None:
        """Raise JsonSizeError for what would take the decoder too long."""
        if self.num_parts > MAX_PARTS:
            raise self._too_much(f"more than {MAX_PARTS} texts, keys, lists and objects")
        if self.num_values > MAX_VALUES:
            raise self._too_much(f"{self.num_values} values; at most {MAX_VALUES} are read")
        if self.num_fractions > MAX_FRACTIONS:
            raise self._too_much(f"{self.num_fractions} numbers with a fraction; at most {MAX_FRACTIONS} are read")
        if self.num_exponents > MAX_EXPONENTS:
            raise self._too_much(f"{self.num_exponents} numbers with an exponent; at most {MAX_EXPONENTS} are read")
        if self.has_long_number:
            raise self._too_much(f"a number of {MAX_DIGITS} digits or more")

    def _too_much(self, what: str) -> JsonSizeError:
        """The field is named where a list of numbers is most of the text."""
        return JsonSizeError(what, self.field if 2 * self.longest > self.num_values else "")


class TextsCheck:
    """Bounds what several texts take the decoder together: as much as one may. The first 64 KiB are not counted."""

    def __init__(self) -> None:
        self._num_bytes = self._num_exponents = 0
        self._counted: Outline | None = None

    def add(self, raw: bytes) -> None:
        """Raise JsonSizeError if this text is too much beside those before it."""
        self._num_bytes += len(raw)
        self._num_exponents += len(_EXPONENT.findall(raw))
        if self._num_bytes <= CHEAP and self._num_exponents <= CHEAP_EXPONENTS:
            return
        outline = Outline.of(raw)
        self._counted = outline if self._counted is None else self._counted.plus(outline)
        self._counted.check()


def is_cheap(raw: bytes) -> bool:
    """Whether the decoder reads this at once, so that it need not be counted first."""
    if len(raw) <= CHEAP // 16:
        return True
    return len(raw) <= CHEAP and not _has_many_exponents(np.frombuffer(raw, np.uint8))


def _has_many_exponents(piece: Bytes) -> bool:
    """Whether there are more than CHEAP_EXPONENTS, strings included."""
    at = np.flatnonzero((piece | _LOWER) == _E)
    return len(at) > CHEAP_EXPONENTS and int(np.count_nonzero(_are_digits(piece[at - 1]))) > CHEAP_EXPONENTS


def _are_digits(piece: Bytes) -> Mask:
    made: Mask = (piece - ord("0")) < 10  # smaller bytes wrap around
    return made


def _key_before(raw: bytes, at: int) -> str:
    found = _KEY.search(raw[max(0, at - 256) : at])
    return found[1].decode(errors="replace") if found else ""


class _Scan:
    """Slices of a text, one after the other; what of one reaches into the next is carried along."""

    def __init__(self) -> None:
        self.num_commas = self.num_opens = self.num_quotes = self.num_points = self.num_exponents = 0
        self.has_long_number = False
        self.longest = 0  # commas in it
        self.longest_at = 0
        self._at = 0  # where the next slice begins
        self._is_inside = False  # a string
        self._is_escaped = False  # the next byte
        self._ends_in_digit = False
        self._depth = 0
        self._run: int | None = None  # where the list began that has held only numbers until now
        self._run_commas = 0

    def add(self, piece: Bytes) -> None:
        quotes = piece == _QUOTE
        self._drop_escaped(quotes, piece)
        num_quotes = int(np.count_nonzero(quotes))
        if num_quotes or not self._is_inside:
            self._count(piece, quotes, self._outside(quotes) if num_quotes else None)
            self.num_quotes += num_quotes
        self._at += len(piece)

    def _drop_escaped(self, quotes: Mask, piece: Bytes) -> None:
        """Clear escaped quotes: escaped are every second backslash of a run, and the byte after a run of odd length."""
        slashes = np.flatnonzero(piece == _BACKSLASH)
        was_escaped, self._is_escaped = self._is_escaped, False
        if not len(slashes):
            quotes[0] &= not was_escaped
            return
        gaps = np.diff(slashes) != 1
        starts, ends = slashes[np.append(True, gaps)], slashes[np.append(gaps, True)]
        lengths = ends - starts + 1
        if was_escaped and starts[0] == 0:
            lengths[0] += 1
        elif was_escaped:
            quotes[0] = False
        escaped = ends[lengths % 2 == 1] + 1
        if len(escaped) and escaped[-1] == len(piece):
            self._is_escaped, escaped = True, escaped[:-1]
        quotes[escaped] = False

    def _outside(self, quotes: Mask) -> Mask:
        """Where no string is: an opening quote is inside, a closing one is not."""
        parity = np.bitwise_xor.accumulate(quotes.view(np.uint8))
        outside: Mask = parity == self._is_inside
        self._is_inside = not outside[-1]
        return outside

    def _count(self, piece: Bytes, quotes: Mask, outside: Mask | None) -> None:
        """outside: None where no string is at all."""
        lower = piece | _LOWER
        commas, opens, closes = piece == _COMMA, lower == _OPEN, lower == _CLOSE
        points, exponents, digits = piece == _POINT, lower == _E, _are_digits(piece)
        if outside is not None:
            for mask in (commas, opens, closes, points, exponents, digits):
                mask &= outside
        self.num_points += int(np.count_nonzero(points))
        self.num_opens += int(np.count_nonzero(opens))
        self.num_exponents += int(np.count_nonzero(exponents[1:] & digits[:-1]))
        self.num_exponents += int(exponents[0] and self._ends_in_digit)
        self._ends_in_digit = bool(digits[-1])
        rows = digits[: len(digits) // MAX_DIGITS * MAX_DIGITS].reshape(-1, MAX_DIGITS)
        self.has_long_number = self.has_long_number or bool(rows.all(axis=1).any())
        self._follow_lists(piece, np.flatnonzero(commas), np.flatnonzero(opens | closes | quotes))

    def _follow_lists(self, piece: Bytes, commas: NDArray[np.intp], breaks: NDArray[np.intp]) -> None:
        """Count the numbers between two breaks; nothing else lies there. A list begins if the first break is a [."""
        self.num_commas += len(commas)
        if not len(breaks):
            self._run_commas += len(commas)
            self._note(self._run, self._run_commas)
            return
        counts = np.diff(np.searchsorted(commas, breaks), prepend=0, append=len(commas))
        self._note(self._run, self._run_commas + int(counts[0]))
        kinds = piece[breaks]
        lower = kinds | _LOWER
        depths = self._depth + np.cumsum((lower == _OPEN).astype(np.int64) - (lower == _CLOSE))
        are_fields = (kinds == _LIST) & (depths == 2)
        if are_fields.any():
            best = int(np.argmax(np.where(are_fields, counts[1:], -1)))
            self._note(self._at + int(breaks[best]), int(counts[best + 1]))
        self._depth = int(depths[-1])
        self._run = self._at + int(breaks[-1]) if are_fields[-1] else None
        self._run_commas = int(counts[-1])

    def _note(self, at: int | None, num_commas: int) -> None:
        if at is not None and num_commas > self.longest:
            self.longest, self.longest_at = num_commas, at

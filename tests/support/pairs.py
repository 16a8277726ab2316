"""Parameters of which every two values meet in the default run, and all combinations in the nightly one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from typing import Any

import pytest

Combination = tuple[Any, ...]


def in_pairs(**values: Sequence[Any]) -> pytest.MarkDecorator:
    """As one `parametrize` a name. A fault that takes three certain values at once is left to the nightly run."""
    places = list(product(*(range(len(of_one)) for of_one in values.values())))
    chosen = _covering(places)
    cases = []
    for place in places:
        case = [of_one[index] for of_one, index in zip(values.values(), place, strict=True)]
        marks = () if place in chosen else (pytest.mark.nightly,)
        cases.append(pytest.param(*case, marks=marks, id="-".join(_name(value) for value in case)))
    return pytest.mark.parametrize(tuple(values), cases)


def _covering(places: list[Combination]) -> set[Combination]:
    """Few of the combinations, with every pair of values that any of them has: the one with most that are new is next,
    and of equals the first."""
    wanted = {place: set(combinations(enumerate(place), 2)) for place in places}
    missing = set().union(*wanted.values())
    chosen = set()
    while missing:
        best = max(places, key=lambda place: len(wanted[place] & missing))
        chosen.add(best)
        missing -= wanted[best]
    return chosen


def _name(value: Any) -> str:
    return str(getattr(value, "__name__", value)).removeprefix("torch.")

"""Python's search for cycles, set for what our programs are like: most objects live long, hardly any are in cycles."""

from __future__ import annotations

import atexit
import gc

# Python's own 700 would have it look at every object of every open request, and every node of the tree, a few times a
# minute: at a thousand streams a quarter of a second each time, in which nobody gets a token.
YOUNG = 10_000  # new objects before the youngest are looked at
ALL = 1_000_000  # times that the young are looked at before all are: hardly ever


# Both of these change the whole process, so they are for programs of our own only.


def look_less_often() -> None:
    """Cycles are found all the same, later, but those that are there at the end are left.

    To import torch takes a tenth less time then, and to end a process that has done so 0.3 s less.
    """
    gc.set_threshold(YOUNG)
    atexit.register(gc.freeze)


def settle() -> None:
    """What lives now lives as long as the process; from now on old objects are hardly ever looked at again.

    What leaves cycles behind leaks there.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, 10, ALL)

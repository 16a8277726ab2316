"""The printed examples of the radix cache print what they promise."""

import subprocess
import sys
from pathlib import Path

import pytest

from minisgl.core import reset_global_ctx

EXAMPLES = Path(__file__).parents[2] / "examples"

CHAPTER_OUTPUT = """\
after inserting [1,2,3,4], [1,2,5,6], [7,8]:
└─ key=[1, 2] value=[10, 11] ref=0
    └─ key=[3, 4] value=[12, 13] ref=0
    └─ key=[5, 6] value=[20, 21] ref=0
└─ key=[7, 8] value=[30, 31] ref=0
match [1,2,3,9]: 3 hit at [10, 11, 12]; after locking:
└─ key=[1, 2] value=[10, 11] ref=1
    └─ key=[3] value=[12] ref=1
        └─ key=[4] value=[13] ref=0
    └─ key=[5, 6] value=[20, 21] ref=0
└─ key=[7, 8] value=[30, 31] ref=0
evictable / protected: (5, 3)
evict 2 tokens, locations freed: [13, 20, 21]
evict 1 more token, locations freed: [30, 31]
the tree that is left:
└─ key=[1, 2] value=[10, 11] ref=1
    └─ key=[3] value=[12] ref=1
"""

WALK_OUTPUT = """\
Two chats with the same opening, and another one; the last token of [7,8,9] does not fill a page:
└─ key=[1, 2, 3, 4] value=[10, 11, 12, 13] ref=0
    └─ key=[5, 6] value=[14, 15] ref=0
    └─ key=[7, 7] value=[24, 25] ref=0
└─ key=[7, 8] value=[30, 31] ref=0
of the second one 4 tokens were cached already: slots 20 to 23 are its caller's to free

A request that shares the first page, and half of the second: a whole page is hit, and split off.
2 tokens hit, at [10, 11]; locked:
└─ key=[1, 2] value=[10, 11] ref=1
    └─ key=[3, 4] value=[12, 13] ref=0
        └─ key=[5, 6] value=[14, 15] ref=0
        └─ key=[7, 7] value=[24, 25] ref=0
└─ key=[7, 8] value=[30, 31] ref=0
evictable, protected: (8, 2)

Memory runs short. The leaf that was not visited for longest goes first, a parent after its last child:
evict 2 tokens, slots freed: [14, 15]
evict 6 tokens, slots freed: [24, 25, 12, 13, 30, 31]
what is locked stays:
└─ key=[1, 2] value=[10, 11] ref=1

unlocked, it can go too: [10, 11] and nothing is left: (0, 0)
"""


@pytest.fixture
def _no_global_context():
    reset_global_ctx()
    yield
    reset_global_ctx()


@pytest.mark.usefixtures("_no_global_context")
def test_the_tree_part_of_the_chapters_program_prints_what_the_chapter_prints(capsys):
    tree_part, end_to_end = (EXAMPLES / "ch09_radix.py").read_text(encoding="utf-8").split("# end to end: ")
    assert end_to_end
    exec(compile(tree_part, "ch09_radix.py", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out == CHAPTER_OUTPUT


def test_the_walk_through_the_tree_prints_what_it_always_printed():
    ran = subprocess.run(
        [sys.executable, str(EXAMPLES / "radix_tree.py")], capture_output=True, encoding="utf-8", check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == WALK_OUTPUT

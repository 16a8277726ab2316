"""A server's tree as one HTML file that needs nothing else: an icicle, as wide as subtrees are large."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from minisgl.cli.tree_shapes import Branch, summary
from minisgl.server.schema.tree import Tree

ROW_PX = 22
MIN_NAMED = 1.5  # percent of the width: what is narrower has no room for a name
NUM_AGES = 5  # shades, each for ages up to three times those of the one before; the last begins at a third of all
PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>minisgl: the prefix cache's tree</title>
<style>
:root {{ color-scheme: light dark; --ink: light-dark(#1c1d21, #e8e8ec); --line: light-dark(#fff, #17181c);
  --lock: light-dark(#c2410c, #fb923c); --rest: light-dark(#c4c4c9, #52525b); }}
body {{ margin: 16px; font: 13px/1.5 system-ui, sans-serif; color: var(--ink); background: light-dark(#fff, #17181c); }}
svg {{ display: block; overflow: hidden; }}
rect {{ stroke: var(--line); fill: var(--rest); }}
text {{ font-size: 11px; fill: var(--ink); }}
.a0 {{ fill: light-dark(#60a5fa, #1d4ed8); }} .a1 {{ fill: light-dark(#93c5fd, #2349b4); }}
.a2 {{ fill: light-dark(#b6d4fb, #294590); }} .a3 {{ fill: light-dark(#c8dcf5, #30426f); }}
.a4 {{ fill: light-dark(#d5dee9, #394156); }} .lock {{ stroke: var(--lock); stroke-width: 2; }}
</style>
<h1>The prefix cache</h1>
<p>{summary}. The wider a box, the more tokens are in it and below it; the fuller its colour, the later it was visited;
framed are those that running requests hold. Point at a box to read all of its line.</p>
<svg role="img" aria-label="{summary}" width="100%" height="{height}">
{boxes}
</svg>
</html>
"""


def as_html(tree: Tree, branches: Sequence[Branch]) -> str:
    """All text is escaped."""
    ends: dict[int | None, float] = {None: 0.0}  # where the next child of a node begins, in percent
    whole = sum(branch.node.subtree_tokens for branch in branches if branch.depth == 0) or 1
    boxes, num_rows = [], 0
    for branch in branches:
        node = branch.node
        left, width = ends[node.parent], 100 * node.subtree_tokens / whole
        ends[node.parent], ends[node.id] = left + width, left
        kind = f"a{_shade(node.age, tree.clock)}{' lock' if node.locks else ''}"
        boxes.append(_box(left, width, branch.depth, kind, branch.label, branch.name))
        num_rows = max(num_rows, branch.depth + 1 + bool(branch.rest))
    for branch in branches:
        if branch.rest:
            width = 100 * branch.node.folded_tokens / whole
            boxes.append(_box(ends[branch.node.id], width, branch.depth + 1, "", branch.rest, branch.rest))
    return PAGE.format(summary=escape(summary(tree)), height=num_rows * ROW_PX, boxes="\n".join(boxes))


def _box(left: float, width: float, depth: int, kind: str, label: str, name: str) -> str:
    """left, width: in percent. name: shown where there is room."""
    place = f'x="{left:.4f}%" y="{depth * ROW_PX}" width="{width:.4f}%" height="{ROW_PX}"'
    shown = f'<text x="4" y="15">{escape(name)}</text>' if width > MIN_NAMED else ""
    kind = f' class="{kind}"' if kind else ""
    return f'<svg {place}><title>{escape(label)}</title><rect width="100%" height="100%"{kind}/>{shown}</svg>'


def _shade(age: int, clock: int) -> int:
    """0 for what was visited last."""
    share = age / max(1, clock)
    return next((i for i in range(NUM_AGES - 1) if share * 3 ** (NUM_AGES - 1 - i) <= 1), NUM_AGES - 1)

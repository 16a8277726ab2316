"""What `minisgl top` knows of a server: the last two looks at it, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from minisgl.cli.session import one_line
from minisgl.server.schema.activity import ActivityNow, Step
from minisgl.server.schema.tree import Tree


class Pace(NamedTuple):
    """Between two looks, by the second. decodes, prefilled: requests and prompt tokens of a batch, on average.

    busy: the share of the time in which the device worked; None where that is not known.
    """

    steps: float
    generated: float
    computed: float
    found: float
    evicted: float
    decodes: float
    prefilled: float
    busy: float | None


class Prefix(NamedTuple):
    """What begins a part of the cache. name: its text where the server shows texts, else its number.

    tokens: of its own; below: of all that begins so, in `nodes` nodes. locks: requests that hold it.
    """

    name: str
    tokens: int
    below: int
    nodes: int
    locks: int


@dataclass
class View:
    """trouble: why the last look failed; what was seen before it stays. prefixes: None where there are none to show."""

    url: str
    model: str = ""
    activity: ActivityNow | None = None
    pace: Pace | None = None
    prefixes: list[Prefix] | None = None
    trouble: str | None = None

    def take(self, activity: ActivityNow) -> None:
        """Another look."""
        self.pace = None if self.activity is None else pace_of(self.activity, activity)
        self.activity, self.trouble = activity, None

    def take_tree(self, tree: Tree) -> None:
        """What hangs below the roots, the largest first."""
        roots = {node.id for node in tree.nodes if node.parent is None}
        first = [node for node in tree.nodes if node.parent in roots]
        first.sort(key=lambda node: -node.subtree_tokens)
        self.prefixes = [
            Prefix(
                one_line(node.text)[1:-1] if node.text else f"#{node.id}",
                node.tokens,
                node.subtree_tokens,
                node.subtree_nodes,
                node.locks,
            )
            for node in first
        ]


def pace_of(before: ActivityNow, after: ActivityNow) -> Pace | None:
    """None if no time has passed, or the clock was set anew by another engine."""
    seconds = after.now_s - before.now_s
    if seconds <= 0:
        return None
    old, new, steps = before.stats, after.stats, after.steps
    batches = max(1, sum(bool(step.decodes or step.prefills) for step in steps))
    return Pace(
        steps=(new.num_batches - old.num_batches) / seconds,
        generated=(new.generated_tokens - old.generated_tokens) / seconds,
        computed=(new.computed_tokens - old.computed_tokens) / seconds,
        found=(new.hit_tokens - old.hit_tokens) / seconds,
        evicted=(new.evicted_tokens - old.evicted_tokens) / seconds,
        decodes=sum(len(step.decodes) for step in steps) / batches,
        prefilled=sum(end - begin for step in steps for _, begin, end in step.prefills) / batches,
        busy=_busy(steps, seconds),
    )


def _busy(steps: list[Step], seconds: float) -> float | None:
    spans = [step.device_s for step in steps if step.device_s is not None]
    return min(1.0, sum(end - begin for begin, end in spans) / seconds) if spans else None

"""Runs of tokens that are not cached any more, hung on what is left: where they left it, and what left them in turn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from minisgl.kvcache.radix_node import TOKEN_BYTES, RadixNode
from minisgl.kvcache.slots import INT32, Tokens, common_prefix_len
from minisgl.kvcache.types import Namespace
from minisgl.utils.math import align_down


class Ghost:
    """A run that was evicted: whole pages. Or a tail: the tokens, fewer than a page, with which a request ended.

    fork: where it leaves what it is hung on; None once it is forgotten. forks: where others leave it, as those of a
    node. gone_at: when it went, of `time.monotonic`. gone_bytes: bytes of tokens evicted until then, its own included.
    A tail has neither.
    """

    __slots__ = ("fork", "forks", "gone_at", "gone_bytes", "token_bytes")

    def __init__(self, token_bytes: bytes) -> None:
        self.token_bytes = token_bytes
        self.gone_at = 0.0
        self.gone_bytes = 0
        self.fork: Fork | None = None
        self.forks: dict[int, Fork] | None = None


class GhostRoot:
    """What the ghosts of a namespace are hung on that begin with the prompt's first token. It is there while they are.

    Apart from the root of what is cached, which goes with the last node.
    """

    __slots__ = ("forks", "namespace")
    token_bytes = b""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self.forks: dict[int, Fork] | None = None


Owner = RadixNode | Ghost | GhostRoot


class Fork:
    """All ghosts that leave `owner` after its first `at` bytes, by their first page; a tail by all of it.

    A node that is split or absorbed hands its forks on as they are, however many ghosts they have.
    """

    __slots__ = ("at", "ghosts", "owner")

    def __init__(self, owner: Owner, at: int, ghosts: dict[bytes, Ghost]) -> None:
        self.owner = owner
        self.at = at
        self.ghosts = ghosts


class Place(NamedTuple):
    """Where a walk ended: `at` bytes into `owner` (None: where there is nothing), `end` bytes from the root.

    first: the first ghost on the way, if there is one.
    """

    owner: Owner | None
    at: int
    end: int
    first: Ghost | None = None


def walk_ghosts(place: Place, tokens: Tokens, page_bytes: int) -> Place:
    """From where the match of `tokens` ends in the tree, on through ghosts, in whole pages."""
    owner, at, end, first = place
    while owner is not None and (fork := fork_at(owner, at)) is not None:
        ghost = fork.ghosts.get(bytes(tokens[end : end + page_bytes]))
        if ghost is None or len(ghost.token_bytes) < page_bytes:
            break
        first = first or ghost
        at = common_bytes(ghost.token_bytes, tokens[end : end + len(ghost.token_bytes)], page_bytes)
        owner, end = ghost, end + at
    return Place(owner, at, end, first)


def fork_at(owner: Owner, at: int) -> Fork | None:
    return None if owner.forks is None else owner.forks.get(at)


def hang(owner: Owner, at: int, key: bytes, ghost: Ghost) -> None:
    """Have `ghost`, which begins with the page `key`, leave `owner` there."""
    forks = owner.forks
    fork = None if forks is None else forks.get(at)
    if fork is not None:
        fork.ghosts[key] = ghost
    else:
        fork = Fork(owner, at, {key: ghost})
        if forks is None:
            owner.forks = {at: fork}
        else:
            forks[at] = fork
    ghost.fork = fork


def split_forks(front: RadixNode, back: RadixNode) -> None:
    """`front` was split off the beginning of `back`."""
    pos = len(front.token_bytes)
    hand_over(back, front, 0, pos, 0)
    hand_over(back, back, pos, pos + len(back.token_bytes), -pos)


def join_forks(parent: RadixNode, child: RadixNode, length: int) -> None:
    """`child` has become the end of a node that begins with the `length` bytes of `parent`."""
    hand_over(child, child, 0, len(child.token_bytes), length)
    hand_over(parent, child, 0, length, 0)


def hand_over(source: Owner, target: Owner, begin: int, end: int, shift: int) -> None:
    """The forks of `source` after more than `begin` bytes, up to `end`, are of `target` now, after `shift` bytes more.

    source and target may be the same one.
    """
    forks = source.forks
    if forks is None:
        return
    moved = [fork for at, fork in forks.items() if begin < at <= end]
    if len(moved) == len(forks):
        source.forks = None
    else:
        for fork in moved:
            del forks[fork.at]
    for fork in moved:
        _adopt(target, fork.at + shift, fork)


def below(owner: Owner) -> Iterator[Ghost]:
    """Every ghost on `owner` and on those; those that others are hung on first."""
    stack = [owner]
    while stack:
        for fork in (stack.pop().forks or {}).values():
            yield from fork.ghosts.values()
            stack.extend(fork.ghosts.values())


def common_bytes(run: bytes, tokens: Tokens, page_bytes: int) -> int:
    """How much of the start of a run, in whole pages, `tokens` begin with too."""
    if run == tokens:
        return len(run)
    num_tokens = common_prefix_len(np.frombuffer(run, INT32), np.frombuffer(tokens, INT32))
    return align_down(num_tokens * TOKEN_BYTES, page_bytes)


def _adopt(owner: Owner, at: int, fork: Fork) -> None:
    fork.owner, fork.at = owner, at
    if owner.forks is None:
        owner.forks = {at: fork}
    else:
        owner.forks[at] = fork

"""What the radix cache remembers of what it has evicted: token ids without pages, the youngest of them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable

from minisgl.kvcache.first_pages import FirstPages
from minisgl.kvcache.ghost import (
    Ghost,
    GhostRoot,
    Owner,
    Place,
    below,
    common_bytes,
    fork_at,
    hand_over,
    hang,
    walk_ghosts,
)
from minisgl.kvcache.ghost_check import check_ghosts
from minisgl.kvcache.radix_forest import RadixRoot
from minisgl.kvcache.radix_node import TOKEN_BYTES, RadixNode
from minisgl.kvcache.radix_walk import find_end
from minisgl.kvcache.slots import Tokens
from minisgl.kvcache.types import Namespace
from minisgl.utils.math import align_down

MAX_RUNS = 1 << 15  # however short they are: one takes up to 700 bytes beside its tokens
MAX_JOINED_BYTES = 16384  # of tokens, up to which runs that go one right after another are one
FEW = 64  # forgotten runs in the order of age that are not worth a sweep


class GhostList:
    """Ghosts on nodes and on each other, so that a path is followed from what is cached into what was.

    A run that is cached again stops being a ghost. The oldest go first, and as leaves are evicted before what they are
    on, those are never on a younger one. max_tokens: remembered at most, in whole pages; 0: none.
    """

    def __init__(self, page_size: int, max_tokens: int) -> None:
        self._page_bytes = page_size * TOKEN_BYTES
        self._max_bytes = align_down(max_tokens * TOKEN_BYTES, self._page_bytes)
        self._roots: dict[Namespace, GhostRoot] = {}
        self._by_age: deque[Ghost] = deque()  # and some that are forgotten
        self._num_runs = 0
        self._num_bytes = 0
        self._last = Ghost(b"")  # of those that were evicted
        self.gone_bytes = 0  # of all tokens ever evicted
        self.first_pages = FirstPages()

    @property
    def num_tokens(self) -> int:
        return self._num_bytes // TOKEN_BYTES

    @property
    def namespaces(self) -> list[Namespace]:
        """Those of which the first tokens of something are remembered."""
        return list(self._roots)

    # ---- what happens to the tree

    def evicted(self, parent: RadixNode, leaf: RadixNode) -> None:
        """`leaf` was taken off `parent`."""
        self._remember(leaf, 0, leaf.token_bytes, parent)

    def trimmed(self, leaf: RadixNode, token_bytes: bytes) -> None:
        """These were taken off the end of `leaf`."""
        self._remember(leaf, len(leaf.token_bytes), token_bytes, leaf)

    def inserted(self, parent: RadixNode, leaf: RadixNode, first_page: bytes) -> None:
        """`leaf` was hung on `parent`: what it has is not a ghost any more, and what left that leaves the leaf."""
        at, tokens, done = len(parent.token_bytes), leaf.token_bytes, 0
        owner: Owner | None = parent
        if parent.parent is None:
            assert isinstance(parent, RadixRoot), f"{parent} is not in the tree"
            owner = self._roots.get(parent.namespace)
            self.first_pages.added(first_page, parent)
        while owner is not None and (fork := fork_at(owner, at)) is not None:
            ghost = fork.ghosts.get(tokens[done : done + self._page_bytes])
            if ghost is None:
                return
            done += self._cover(ghost, leaf, done)
            owner, at = leaf, done

    def tail(self, node: RadixNode, namespace: Namespace, token_bytes: bytes) -> None:
        """A request ended with these, fewer than a page, after the end of `node`; a root stands for the namespace's."""
        if self._max_bytes:
            owner = node if node.parent is not None else self._root(namespace)
            fork = fork_at(owner, len(node.token_bytes))
            if fork is None or token_bytes not in fork.ghosts:
                ghost = Ghost(token_bytes)
                hang(owner, len(node.token_bytes), token_bytes, ghost)
                self._by_age.append(ghost)
                self._num_runs += 1
                self._num_bytes += len(token_bytes)
                self._shrink()

    # ---- what is asked, and what shall be forgotten

    def end_of_match(
        self, node: RadixNode | None, namespace: Namespace, tokens: Tokens, matched_len: int
    ) -> tuple[Place, Place]:
        """Where `tokens` lead: as far as they are cached, and from there through ghosts. In whole pages.

        node: at the end of which `matched_len` of them match; None if the namespace has nothing.
        """
        at = 0
        if node is not None:
            node, at, matched_len = find_end(node, tokens, matched_len, self._page_bytes // TOKEN_BYTES)
        owner = self._roots.get(namespace) if node is None or node.parent is None else node
        live = Place(node, at, matched_len * TOKEN_BYTES)
        known = walk_ghosts(Place(owner, at, live.end), tokens, self._page_bytes)
        return live, known

    def forget(self, namespace: Namespace, root: RadixRoot | None, prefix: Tokens) -> None:
        """All ghosts of the namespace that begin with `prefix` (bytes of tokens), but those on nodes that do.

        root: of what is cached in it.
        """
        cut = align_down(max(0, len(prefix) - TOKEN_BYTES), self._page_bytes)
        last = bytes(prefix[cut:])
        owner, at, end, _ = self.end_of_match(root, namespace, prefix[:cut], 0)[1]
        if owner is None or end < cut:
            return
        if isinstance(owner, Ghost) and at < len(owner.token_bytes) and owner.token_bytes.startswith(last, at):
            self._forget_all([*below(owner), owner])
            return
        fork = fork_at(owner, at)
        tops = [ghost for ghost in fork.ghosts.values() if ghost.token_bytes.startswith(last)] if fork else []
        for top in tops:
            self._forget_all([*below(top), top])

    def forget_below(self, node: RadixNode) -> None:
        """Of a node that nothing shall lead to any more."""
        self._forget_all(list(below(node)))

    # ---- the list

    def _remember(self, leaf: RadixNode, pos: int, token_bytes: bytes, end: RadixNode) -> None:
        """`token_bytes`, the end of `leaf` from byte `pos` on, are gone; what is left there ends with `end`."""
        num_bytes, ghost = len(token_bytes), self._last
        if not self._max_bytes:
            return
        if ghost.gone_bytes == self.gone_bytes and self._goes_on(leaf, pos + num_bytes, num_bytes):
            hand_over(ghost, ghost, 0, len(ghost.token_bytes), num_bytes)
            ghost.token_bytes = token_bytes + ghost.token_bytes
            leaf.forks = None
        else:
            self._last = ghost = Ghost(token_bytes)
            hand_over(leaf, ghost, pos, pos + num_bytes, -pos)
            self._by_age.append(ghost)
            self._num_runs += 1
        self.gone_bytes += num_bytes
        ghost.gone_at, ghost.gone_bytes = time.monotonic(), self.gone_bytes
        self._num_bytes += num_bytes
        if len(ghost.token_bytes) > self._max_bytes:
            self._shorten(ghost)
        owner = self._plant(end) if end.parent is None else end
        hang(owner, len(end.token_bytes), ghost.token_bytes[: self._page_bytes], ghost)
        self._shrink()

    def _goes_on(self, leaf: RadixNode, end: int, num_bytes: int) -> bool:
        """Whether what went last is all that left `leaf`, at `end`; then it and `num_bytes` before it may be one."""
        fork = self._last.fork
        return (
            fork is not None
            and fork.owner is leaf
            and fork.at == end
            and len(fork.ghosts) == 1 == len(leaf.forks or ())
            and len(self._last.token_bytes) + num_bytes <= MAX_JOINED_BYTES
        )

    def _shorten(self, ghost: Ghost) -> None:
        """To what may be remembered in all."""
        rest = Ghost(b"")
        hand_over(ghost, rest, self._max_bytes, len(ghost.token_bytes), 0)
        self._forget_all(list(below(rest)))
        self._num_bytes -= len(ghost.token_bytes) - self._max_bytes
        ghost.token_bytes = ghost.token_bytes[: self._max_bytes]

    def _shrink(self) -> None:
        """Forget the oldest that are too much."""
        while self._num_bytes > self._max_bytes or self._num_runs > MAX_RUNS:
            oldest = self._by_age.popleft()
            if oldest.fork is not None:
                self._forget(oldest)
        if len(self._by_age) > FEW + 2 * self._num_runs:
            self._by_age = deque(ghost for ghost in self._by_age if ghost.fork is not None)

    def _cover(self, ghost: Ghost, leaf: RadixNode, begin: int) -> int:
        """`leaf` has, from byte `begin` on, the first page of `ghost`: how many bytes it has of it."""
        run = ghost.token_bytes
        common = common_bytes(run, leaf.token_bytes[begin : begin + len(run)], self._page_bytes)
        self._take_off(ghost)
        hand_over(ghost, leaf, 0, common, begin)
        hand_over(ghost, ghost, common, len(run), -common)
        self._num_bytes -= common
        if common < len(run):
            ghost.token_bytes = run[common:]
            ghost.gone_bytes -= common  # runs go from their ends
            hang(leaf, begin + common, ghost.token_bytes[: self._page_bytes], ghost)
        else:
            ghost.token_bytes = b""
            self._num_runs -= 1
        return common

    def _forget_all(self, ghosts: list[Ghost]) -> None:
        for ghost in ghosts:
            self._forget(ghost)

    def _forget(self, ghost: Ghost) -> None:
        self._take_off(ghost)
        self._num_runs -= 1
        self._num_bytes -= len(ghost.token_bytes)
        ghost.token_bytes = b""  # it stays in the order of age for a while

    def _take_off(self, ghost: Ghost) -> None:
        fork = ghost.fork
        assert fork is not None, "forgotten twice"
        ghost.fork = None
        del fork.ghosts[ghost.token_bytes[: self._page_bytes]]
        if not fork.ghosts:
            owner = fork.owner
            assert owner.forks is not None
            del owner.forks[fork.at]
            if not owner.forks:
                owner.forks = None
                if isinstance(owner, GhostRoot):
                    del self._roots[owner.namespace]

    def _plant(self, node: RadixNode) -> GhostRoot:
        assert isinstance(node, RadixRoot), f"{node} is not in the tree"
        return self._root(node.namespace)

    def _root(self, namespace: Namespace) -> GhostRoot:
        """What the ghosts are hung on that begin a prompt; it is made if there is none."""
        root = self._roots.get(namespace)
        if root is None:
            root = self._roots[namespace] = GhostRoot(namespace)
        return root

    def check_integrity(self, nodes: Iterable[RadixNode], roots: Iterable[RadixRoot]) -> None:
        """AssertionError unless what hangs in the trees is right, and what is counted. nodes: without `roots`."""
        live = {root.namespace: root for root in roots}
        owners = [(root, live.get(root.namespace)) for root in self._roots.values()]
        assert all(root.forks for root, _ in owners), "a namespace's ghosts are gone, and what they were on is not"
        found = check_ghosts([*owners, *((node, node) for node in nodes)], self._by_age, self._page_bytes)
        num_bytes = sum(len(ghost.token_bytes) for ghost in found)
        assert (len(found), num_bytes) == (self._num_runs, self._num_bytes), (
            f"{len(found)} ghosts of {num_bytes} bytes, counted {self._num_runs} of {self._num_bytes}"
        )
        assert num_bytes <= self._max_bytes, f"{num_bytes} bytes are remembered, {self._max_bytes} may be"

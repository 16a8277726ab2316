"""A small radix tree with an eviction queue, beside which a plain account is kept of all that a policy goes by.

Tokens are small ints; a page is one token. Nothing is cached; the tree is only there to be visited and evicted.
"""

from dataclasses import dataclass, replace

import numpy as np

from minisgl.kvcache.eviction import EVICTION_POLICIES
from minisgl.kvcache.radix_node import RadixNode


@dataclass
class Account:
    """What is known of one node."""

    hits: int
    birth: int
    time: int
    priority: int
    again: bool  # matched since it was inserted, or remembered when it was


ORDERS = {
    "lru": lambda a: a.time,
    "lfu": lambda a: (a.hits, a.time),
    "fifo": lambda a: a.birth,
    "mru": lambda a: -a.time,
    "slru": lambda a: (a.hits >= 2, a.time),
    "priority": lambda a: (a.priority, a.time),
}


def as_bytes(tokens):
    return np.array(tokens, np.int32).tobytes()


def as_tokens(node):
    return tuple(np.frombuffer(node.token_bytes, np.int32).tolist())


def path_above(node):
    """The nodes from `node` up, without the root."""
    while node.parent is not None:
        yield node
        node = node.parent


def text(node):
    """All tokens from the root to the end of `node`."""
    return tuple(token for part in reversed(list(path_above(node))) for token in as_tokens(part))


def below(node):
    for child in list(node.children.values()):
        yield child
        yield from below(child)


class Grove:
    def __init__(self, policy):
        self.policy = policy
        self.queue = EVICTION_POLICIES[policy]()
        self.root = RadixNode(b"", b"", 0, ref_count=1)
        self.clock = 0
        self.accounts = {}
        self.memory = Memory()
        self.num_waits = 0

    def match(self, tokens):
        node, _ = self._walk(tokens)
        for part in path_above(node):
            account = self.accounts[part]
            account.hits += 1
            account.again = True
        if self.queue.takes_notes:
            self.queue.matched(node)
        return node

    def insert(self, tokens, priority=0):
        node, num_found = self._walk(tokens)
        for part in path_above(node):
            self.accounts[part].priority = max(self.accounts[part].priority, priority)
        is_new = num_found < len(tokens)
        if is_new:
            node = self._grow(node, tokens[num_found:], priority)
        if self.queue.takes_notes:
            self.queue.inserted(node, is_new, priority)
        if is_new:
            self.queue.push(node)
        return node

    def lock(self, node):
        for part in path_above(node):
            part.ref_count += 1

    def unlock(self, node):
        for part in path_above(node):
            part.ref_count -= 1
        self.queue.push(node)

    def expect(self, node):
        """One more request waits for `node`, and comes after all others."""
        self.num_waits += 1
        node.expected = [*(node.expected or ()), self.num_waits]

    def unexpect(self, node):
        """The first of those that wait for `node` waits no longer."""
        self._keep_waiting(node, node.expected[1:])

    def _keep_waiting(self, node, waits):
        node.expected = waits or None
        if node.queued:
            self.queue.expected_later(node)

    def evict(self, num_tokens=None):
        """Evict the first leaf, or this many tokens of it if it has more; the tokens of the whole path as it was."""
        leaf = self.queue.first()
        assert leaf is self.first_by_the_account()
        whole, length = text(leaf), leaf.length
        num_tokens = length if num_tokens is None else min(num_tokens, length)
        cut = len(whole) - num_tokens
        self.memory.remember(self.sizes(), self.accounts[leaf].again, whole[:cut], whole[cut:])
        if num_tokens == length:
            self.queue.take(leaf)
        if self.queue.takes_notes:
            self.queue.evicting(leaf, num_tokens)
        if num_tokens < length:
            leaf.trim(num_tokens)
        else:
            self._fell(leaf)
        return whole

    def purge(self, node):
        for gone in [node, *below(node)]:
            gone.dead = True
            del self.accounts[gone]
            self.queue.removed(gone)
        self.queue.push(node.detach())

    def merge(self, node):
        """Let `node` absorb its parent, if nothing that a policy goes by tells them apart."""
        parent = node.parent
        if parent is self.root or len(parent.children) > 1 or parent.expected:
            return
        if parent.ref_count == node.ref_count and self.accounts[parent] == self.accounts[node]:
            node.absorb_parent()
            del self.accounts[parent]
            self.queue.absorbed(parent)

    def first_by_the_account(self):
        leaves = [node for node in self.accounts if node.ref_count == 0 and not node.children]
        unexpected = [node for node in leaves if not node.expected]
        if leaves and not unexpected:
            return max(leaves, key=lambda node: node.expected[0])
        return min(unexpected, key=self._order, default=None)

    def sizes(self):
        """Tokens seen once, tokens seen again."""
        return [sum(n.length for n, a in self.accounts.items() if a.again == again) for again in (False, True)]

    def texts(self):
        return {text(node) for node in self.accounts}

    def check(self):
        assert self.queue.first() is self.first_by_the_account()
        self.queue.check_integrity(list(below(self.root)))

    def _order(self, node):
        account = self.accounts[node]
        if self.policy == "arc":
            return account.again == (self.sizes()[False] > self.memory.target), account.time
        return ORDERS[self.policy](account)

    def _walk(self, tokens):
        self.clock += 1
        node, end = self.root, 0
        while end < len(tokens) and (child := node.children.get(as_bytes(tokens[end : end + 1]))) is not None:
            run = as_tokens(child)
            same = next((i for i, pair in enumerate(zip(run, tokens[end:], strict=False)) if pair[0] != pair[1]), None)
            same = min(len(run), len(tokens) - end) if same is None else same
            if same < len(run):
                front = child.split_at(same)
                self.accounts[front] = replace(self.accounts[child])
                child = front
            node, end = child, end + same
            node.last_access = self.accounts[node].time = self.clock
        return node, end

    def _grow(self, parent, tokens, priority):
        leaf = RadixNode(as_bytes(tokens), as_bytes(range(len(tokens))), self.clock)
        leaf.hang(parent, leaf.first_page)
        num_known = self.memory.recall(sum(self.sizes()) + len(tokens), text(parent), tuple(tokens))
        self.accounts[leaf] = Account(0, self.clock, self.clock, priority, 2 * num_known >= len(tokens))
        return leaf

    def _fell(self, leaf):
        del self.accounts[leaf]
        parent = leaf.detach()
        if leaf.expected:
            parent.expected = sorted([*(parent.expected or ()), *leaf.expected])
            self._keep_waiting(leaf, [])
        self.queue.push(parent)


class Memory:
    """ARC's memory of evicted runs, two plain lists of [what was before, run], the oldest first, and its target."""

    def __init__(self):
        self.runs = [[], []]
        self.target = 0

    def num_tokens(self, again):
        return sum(len(run) for _, run in self.runs[again])

    def remember(self, sizes, again, before, run):
        for runs in self.runs:
            runs[:] = [known for known in runs if (known[0], known[1][0]) != (before, run[0])]
        self.runs[again].append([before, run])
        size = sum(sizes)
        sizes[again] -= len(run)
        self._shrink(False, size - sizes[0])
        self._shrink(True, 2 * size - sum(sizes) - self.num_tokens(False))

    def recall(self, size, before, tokens):
        """How many of `tokens`, which come after `before`, come back; they are forgotten and move the target."""
        start = 0
        while start < len(tokens):
            place = before + tokens[:start], tokens[start]
            found = [(a, k) for a in (False, True) for k in self.runs[a] if (k[0], k[1][0]) == place]
            if not found:
                break
            again, known = found[0]
            lens = [self.num_tokens(False), self.num_tokens(True)]
            same = 0
            while same < min(len(known[1]), len(tokens) - start) and known[1][same] == tokens[start + same]:
                same += 1
            shift = same * max(lens) // lens[again]
            self.target = max(0, self.target - shift) if again else min(size, self.target + shift)
            start += same
            known[:] = before + tokens[:start], known[1][same:]
            runs = self.runs[again]
            runs[:] = [k for k in runs if k is known or not known[1] or (k[0], k[1][0]) != (known[0], known[1][0])]
            runs[:] = [k for k in runs if k[1]]
        return start

    def _shrink(self, again, num_tokens):
        while (excess := self.num_tokens(again) - num_tokens) > 0:
            oldest = self.runs[again][0]
            oldest[1] = oldest[1][: max(0, len(oldest[1]) - excess)]
            self.runs[again] = [known for known in self.runs[again] if known[1]]

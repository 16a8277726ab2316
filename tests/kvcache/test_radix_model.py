"""The radix cache against a second, slow account of the same rules: a plain dict from prefix to page."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from minisgl.kvcache import PUBLIC, Namespace, RadixPrefixCache
from minisgl.kvcache.eviction import EVICTION_POLICIES

NAMESPACES = [PUBLIC, Namespace(cache_salt="a"), Namespace(adapter="a")]


@dataclass
class Entry:
    """The last page of one cached prefix."""

    page: int
    locks: int
    time: int
    dead: bool = False


class ModelCache:
    """What is cached, by prefix (a tuple of whole pages of tokens), without any tree. dead: purged and locked."""

    def __init__(self, page_size):
        self.page_size = page_size
        self.clock = 0
        self.entries = {}
        self.dead = []

    def prefixes(self, tokens):
        return [tokens[:end] for end in range(self.page_size, len(tokens) + 1, self.page_size)]

    def probe(self, tokens):
        hit = ()
        for prefix in self.prefixes(tokens):
            if prefix not in self.entries:
                break
            hit = prefix
        return hit

    def match(self, tokens):
        self.clock += 1
        hit = self.probe(tokens)
        for prefix in self.prefixes(hit):
            self.entries[prefix].time = self.clock
        return hit

    def insert(self, tokens, pages):
        hit = self.match(tokens)
        for prefix, page in zip(self.prefixes(tokens), pages, strict=True):
            if len(prefix) > len(hit):
                self.entries[prefix] = Entry(page, 0, self.clock)
        return hit

    def path(self, prefix):
        return [self.entries[part] for part in self.prefixes(prefix)]

    def unlock(self, path):
        """Give up a lock; the pages of what was purged and is read by nobody now."""
        for entry in path:
            entry.locks -= 1
        gone = [entry.page for entry in path if entry.dead and not entry.locks]
        self.dead = [entry for entry in self.dead if entry.locks]
        return gone

    def evict(self, pages):
        """Forget these; each must be unlocked, and nothing may be cached behind it."""
        gone = [prefix for prefix, entry in self.entries.items() if entry.page in pages]
        assert len(gone) == len(pages)
        for prefix in gone:
            assert self.entries.pop(prefix).locks == 0
        assert all(
            len(prefix) == self.page_size or prefix[: -self.page_size] in self.entries for prefix in self.entries
        )

    def purge(self, start):
        """Forget what begins with `start`, and what leads only there; the pages that nobody reads."""
        gone = [prefix for prefix in self.entries if prefix[: len(start)] == start and len(prefix) >= len(start)]
        if not gone:
            return []
        shortest = min(map(len, gone))
        locks = sum(self.entries[prefix].locks for prefix in gone if len(prefix) == shortest)
        above = gone[0][: shortest - self.page_size]
        killed = [self.entries.pop(prefix) for prefix in gone]
        while len(above) >= max(1, self.page_size) and above in self.entries and self.entries[above].locks == locks:
            if any(prefix[: -self.page_size] == above for prefix in self.entries):
                break
            killed.append(self.entries.pop(above))
            above = above[: -self.page_size]
        for entry in killed:
            entry.dead = True
        self.dead += [entry for entry in killed if entry.locks]
        return [entry.page for entry in killed if not entry.locks]

    def num_pages(self, locked):
        live = sum((entry.locks > 0) == locked for entry in self.entries.values())
        return live + (len(self.dead) if locked else 0)


def tagged(tokens, namespace):
    """The tokens as the model knows them: namespaces are alphabets of their own."""
    return tuple(token + 10 * (1 + NAMESPACES.index(namespace)) for token in tokens)


@dataclass
class Leaf:
    """A node as eviction by hand sees it. ends: how long its path is. pages: in order of position."""

    root: int
    node: object
    ends: int
    prefix: tuple
    pages: list
    num_children: int


def nodes_of(cache):
    """Every live node of a radix cache, by identity, read off its children."""
    found, stack = {}, [((), child, root) for root in cache._tree.forest.roots() for child in root.children.values()]
    while stack:
        above, node, root = stack.pop()
        tokens = above + tagged(node._key.tolist(), root.namespace)
        found[node] = Leaf(id(root), node, len(tokens), tokens, node.pages.tolist(), len(node.children))
        stack += [(tokens, child, root) for child in node.children.values()]
    return found


def contents(cache):
    """{prefix: (page, locks, time)} of a radix cache, read off its nodes."""
    found = {}
    for leaf in nodes_of(cache).values():
        start = leaf.ends - len(leaf.pages) * cache.page_size
        for i, page in enumerate(leaf.pages):
            prefix = leaf.prefix[: start + (i + 1) * cache.page_size]
            found[prefix] = (page, leaf.node.ref_count, leaf.node.last_access)
    return found


def lru_victims(cache, num_pages, trim, expected):
    """The pages that go, leaf by leaf, by looking at all nodes each time. expected: prefixes of requests to come."""
    nodes, freed = nodes_of(cache), []
    while len(freed) < num_pages:
        leaves = [leaf for leaf in nodes.values() if not leaf.num_children and not leaf.node.ref_count]
        root = min(leaves, key=lambda leaf: leaf.node.last_access).root
        own = [leaf for leaf in leaves if leaf.root == root]
        spared = [leaf for leaf in own if any(ends_in(leaf, prefix, cache.page_size) for prefix in expected)]
        leaf = min([leaf for leaf in own if leaf not in spared] or own, key=lambda leaf: leaf.node.last_access)
        count = min(len(leaf.pages), num_pages - len(freed)) if trim else len(leaf.pages)
        freed += leaf.pages[len(leaf.pages) - count :]
        nodes.pop(leaf.node)
        expected = [
            p[: leaf.ends - count * cache.page_size] if ends_in(leaf, p, cache.page_size) else p for p in expected
        ]
        if leaf.node.parent in nodes:
            nodes[leaf.node.parent].num_children -= 1
    return freed


def ends_in(leaf, prefix, page_size):
    start = leaf.ends - len(leaf.pages) * page_size
    return start < len(prefix) <= leaf.ends and leaf.prefix[: len(prefix)] == prefix


class Both:
    """Does everything to a radix cache and to the model, and compares what they answer."""

    def __init__(self, page_size, eviction="lru"):
        self.cache = RadixPrefixCache(torch.device("cpu"), page_size, eviction)
        self.model = ModelCache(page_size)
        self.is_lru = eviction == "lru"
        self.spaces = set()
        self.has_expected = False
        self.locked = []
        self.kept = []
        self.watched = []
        self.known_lens = {}
        self.num_pages_made = 0

    @property
    def predicts(self):
        """Whether victims can be told from the tree alone: whose turn it is depends on what was spared before."""
        return self.is_lru and not (self.has_expected and len(self.spaces) > 1)

    def match(self, tokens, lock, namespace=PUBLIC):
        handle = self.cache.match_prefix(np.array(tokens, np.int32), namespace).cuda_handle
        hit = self.model.match(tagged(tokens, namespace))
        assert handle.cached_len == len(hit)
        if lock:
            self.lock(handle, hit)
        else:
            self.kept = [*self.kept[-3:], (handle, hit, self.model.path(hit))]

    def probe(self, tokens, namespace=PUBLIC):
        found = self.cache.probe(np.array(tokens, np.int32), namespace)
        assert found == len(self.model.probe(tagged(tokens, namespace)))

    def insert(self, tokens, lock, namespace=PUBLIC, priority=0):
        whole = tagged(tokens, namespace)[: len(tokens) // self.model.page_size * self.model.page_size]
        pages = np.arange(self.num_pages_made, self.num_pages_made + len(whole) // self.model.page_size, dtype=np.int32)
        self.num_pages_made += len(pages)
        self.spaces.add(namespace)
        cached_len, handle = self.cache.insert_pages(np.array(tokens, np.int32), pages, namespace, priority)
        assert cached_len == len(self.model.insert(whole, pages.tolist()))
        assert handle.cached_len == len(whole)
        if lock:
            self.lock(handle, whole)
        else:
            self.kept = [*self.kept[-3:], (handle, whole, self.model.path(whole))]

    def lock(self, handle, prefix):
        self.cache.lock_handle(handle)
        path = self.model.path(prefix)
        for entry in path:
            entry.locks += 1
        self.locked.append((handle, path))

    def lock_kept(self, i):
        """Lock what was found earlier, if all of it is still cached: whatever was split and merged since."""
        handle, prefix, path = self.kept.pop(i % len(self.kept))
        if all(
            self.model.entries.get(part) is entry for part, entry in zip(self.model.prefixes(prefix), path, strict=True)
        ):
            assert handle.get_matched_pages().tolist() == [entry.page for entry in path]
            self.lock(handle, prefix)

    def unlock(self, i):
        handle, path = self.locked.pop(i % len(self.locked))
        assert handle.get_matched_pages().tolist() == [entry.page for entry in path]
        self.cache.lock_handle(handle, unlock=True)
        assert sorted(self.cache.reclaim()) == sorted(self.model.unlock(path))

    def purge(self, namespace, prefix):
        freed = self.cache.purge(namespace, np.array(prefix, np.int32))
        spaces = NAMESPACES if namespace is None else [namespace]
        expected = []
        for space in spaces:
            start = tagged(prefix, space)
            expected += self.model.purge(start) if prefix else self.purge_all(space)
        assert sorted(freed) == sorted(expected)

    def purge_all(self, namespace):
        firsts = {
            p[: self.model.page_size] for p in self.model.entries if p[0] // 10 == 1 + NAMESPACES.index(namespace)
        }
        return [page for first in firsts for page in self.model.purge(first)]

    def evict(self, num_pages, trim):
        num_pages = min(num_pages, self.model.num_pages(locked=False))
        predicts = self.predicts
        if predicts:
            expected = [self.prefix_of(w, w[0].cached_len) for w in self.watched if w[0].expected and w[0].cached_len]
            victims = lru_victims(self.cache, num_pages, trim, expected)
        freed = self.cache.evict_pages(num_pages, trim).tolist()
        assert not predicts or freed == victims
        assert len(freed) == num_pages or (len(freed) > num_pages and not trim)
        self.model.evict(set(freed))

    def watch(self, tokens, namespace=PUBLIC):
        watch = self.cache.watch(np.array(tokens, np.int32), namespace)
        self.watched.append((watch, tagged(tokens, namespace)))
        self.known_lens[watch] = watch.cached_len
        assert watch.cached_len == len(self.model.probe(tagged(tokens, namespace)))

    def unwatch(self, i):
        watch = self.watched.pop(i % len(self.watched))[0]
        del self.known_lens[watch]
        self.cache.unwatch(watch)

    def expect(self, i, expected):
        self.has_expected = True
        self.cache.expect(self.watched[i % len(self.watched)][0], expected)

    def advance(self, budget):
        changed = set(self.cache.advance_watches(budget))
        for watch in self.known_lens:
            assert watch in changed or watch.cached_len == self.known_lens[watch]
            self.known_lens[watch] = watch.cached_len

    def prefix_of(self, watched, length):
        return watched[1][:length]

    def compare(self):
        expected = {prefix: (entry.page, entry.locks, entry.time) for prefix, entry in self.model.entries.items()}
        assert contents(self.cache) == expected
        dead = [(page, node.ref_count) for node in self.cache._tree.forest.dead for page in node.pages.tolist()]
        assert sorted(dead) == sorted((entry.page, entry.locks) for entry in self.model.dead)
        num_tokens = [self.model.num_pages(locked) * self.model.page_size for locked in (False, True)]
        assert list(self.cache.size_info) == num_tokens
        for watch, tokens in self.watched:
            assert watch.cached_len <= len(self.model.probe(tokens))

    def compare_watches(self):
        self.advance(10**9)
        for watch, tokens in self.watched:
            assert watch.cached_len == len(self.model.probe(tokens))


def random_tokens(rng, recent, page_size):
    """The start of an earlier prompt (often), then tokens of an alphabet of three."""
    start = recent[rng.integers(len(recent))] if rng.random() < 0.8 else ()
    start = start[: rng.integers(len(start) + 1)]
    tail = rng.integers(0, 3, rng.integers(3 * page_size + 2)).tolist()
    recent[rng.integers(len(recent))] = tokens = (start + tuple(tail))[: 12 * page_size + 1]
    return tokens


def run_random_operations(seed, page_size, num_operations, eviction="lru", num_spaces=3):
    rng = np.random.default_rng(seed)
    both, recent = Both(page_size, eviction), [()] * 8
    for i in range(num_operations):
        choice, namespace = rng.random(), NAMESPACES[rng.choice(3, p=[0.7, 0.2, 0.1]) % num_spaces]
        if choice < 0.3:
            both.insert(random_tokens(rng, recent, page_size), choice < 0.15, namespace, int(rng.integers(3)))
        elif choice < 0.5:
            both.match(random_tokens(rng, recent, page_size), choice < 0.4, namespace)
        elif choice < 0.51:
            start = recent[rng.integers(8)]
            start = start[: rng.integers(len(start) + 1)]
            both.purge(
                None if rng.random() < 0.2 else namespace, start if len(start) > 2 or rng.random() < 0.2 else (1, 1, 1)
            )
        elif choice < 0.53:
            both.probe(random_tokens(rng, recent, page_size), namespace)
        elif choice < 0.58:
            random_watching(rng, both, random_tokens(rng, recent, page_size), namespace)
        elif choice < 0.64 and both.kept:
            both.lock_kept(int(rng.integers(4)))
        elif choice < 0.85 and both.locked:
            both.unlock(int(rng.integers(len(both.locked))))
        elif len(both.model.entries) > 24:
            both.evict(int(rng.integers(12)), trim=choice > 0.9)
        both.compare()
        if i % 20 == 0:
            both.cache.check_integrity()
        if i % 20 == 10:
            both.compare_watches()
    assert both.num_pages_made > num_operations / 4


def random_watching(rng, both, tokens, namespace):
    if len(both.watched) < 4 or (len(both.watched) < 12 and rng.random() < 0.5):
        both.watch(tokens, namespace)
    elif rng.random() < 0.3:
        both.unwatch(int(rng.integers(12)))
    elif rng.random() < 0.7 and len(both.spaces) == 1:
        both.expect(int(rng.integers(12)), expected=bool(rng.random() < 0.7))
    else:
        both.advance(int(rng.integers(4)))


@pytest.mark.parametrize(("page_size", "num_spaces"), [(1, 1), (4, 1), (1, 3), (4, 3)])
def test_r7_random_operations_agree_with_the_model_at_every_step(page_size, num_spaces):
    run_random_operations(seed=0, page_size=page_size, num_operations=1_500, num_spaces=num_spaces)


@pytest.mark.parametrize("eviction", [name for name in EVICTION_POLICIES.names if name != "lru"])
def test_random_operations_under_other_policies_keep_the_tree_whole(eviction):
    run_random_operations(seed=0, page_size=2, num_operations=1_000, eviction=eviction)


@pytest.mark.nightly
@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("num_spaces", [1, 3])
@pytest.mark.parametrize("seed", range(5))
def test_r7_long_random_runs_agree_with_the_model_at_every_step(seed, page_size, num_spaces):
    run_random_operations(seed, page_size, num_operations=20_000, num_spaces=num_spaces)


TOKENS = st.lists(st.integers(0, 1), max_size=9).map(tuple)
SPACES = st.sampled_from(NAMESPACES)


class RadixMachine(RuleBasedStateMachine):
    """Hypothesis looks for the shortest run of operations in which cache and model disagree. Vocabulary of two."""

    @initialize(page_size=st.sampled_from([1, 2, 3]))
    def start(self, page_size):
        self.both = Both(page_size)

    @rule(tokens=TOKENS, lock=st.booleans(), namespace=SPACES)
    def match(self, tokens, lock, namespace):
        self.both.match(tokens, lock, namespace)

    @rule(tokens=TOKENS, lock=st.booleans(), namespace=SPACES)
    def insert(self, tokens, lock, namespace):
        self.both.insert(tokens, lock, namespace)

    @rule(tokens=TOKENS, namespace=SPACES)
    def probe(self, tokens, namespace):
        self.both.probe(tokens, namespace)

    @rule(prefix=TOKENS, namespace=st.none() | SPACES)
    def purge(self, prefix, namespace):
        self.both.purge(namespace, prefix)

    @precondition(lambda self: self.both.kept)
    @rule(i=st.integers(0, 3))
    def lock_kept(self, i):
        self.both.lock_kept(i)

    @precondition(lambda self: self.both.locked)
    @rule(i=st.integers(0, 9))
    def unlock(self, i):
        self.both.unlock(i)

    @rule(num_pages=st.integers(0, 9), trim=st.booleans())
    def evict(self, num_pages, trim):
        self.both.evict(num_pages, trim)

    @rule(tokens=TOKENS, namespace=SPACES)
    def watch(self, tokens, namespace):
        self.both.watch(tokens, namespace)

    @precondition(lambda self: self.both.watched)
    @rule(i=st.integers(0, 9))
    def unwatch(self, i):
        self.both.unwatch(i)

    @precondition(lambda self: self.both.watched)
    @rule(i=st.integers(0, 9), expected=st.booleans())
    def expect(self, i, expected):
        self.has_expected = True
        self.both.expect(i, expected)

    @rule(budget=st.integers(0, 3))
    def advance(self, budget):
        self.both.advance(budget)

    @rule()
    def advance_all(self):
        self.both.compare_watches()

    @invariant()
    def agree(self):
        self.both.compare()
        self.both.cache.check_integrity()


TestRadixMachine = RadixMachine.TestCase
TestRadixMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None, derandomize=True)

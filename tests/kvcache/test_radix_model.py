"""The radix cache against a second, slow account of the same rules: a plain dict from prefix to page."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from minisgl.kvcache import PUBLIC, Namespace, RadixPrefixCache

NAMESPACES = [PUBLIC, Namespace(cache_salt="a"), Namespace(adapter="a")]


@dataclass
class Entry:
    """The last page of one cached prefix. ends: whether some match or insertion ended here, so that a node does."""

    page: int
    locks: int
    time: int
    ends: bool = False


class ModelCache:
    """What is cached, by prefix (a tuple of whole pages of tokens), without any tree."""

    def __init__(self, page_size):
        self.page_size = page_size
        self.clock = 0
        self.entries = {}

    def prefixes(self, tokens):
        return [tokens[:end] for end in range(self.page_size, len(tokens) + 1, self.page_size)]

    def match(self, tokens):
        self.clock += 1
        hit = ()
        for prefix in self.prefixes(tokens):
            if prefix not in self.entries:
                break
            self.entries[prefix].time = self.clock
            hit = prefix
        if hit:
            self.entries[hit].ends = True
        return hit

    def insert(self, tokens, pages):
        hit = self.match(tokens)
        for prefix, page in zip(self.prefixes(tokens), pages, strict=True):
            if len(prefix) > len(hit):
                self.entries[prefix] = Entry(page, 0, self.clock)
        for whole in self.prefixes(tokens)[-1:]:
            self.entries[whole].ends = True
        return hit

    def lock(self, prefix, by):
        for part in self.prefixes(prefix):
            self.entries[part].locks += by

    def evict(self, num_pages):
        freed = []
        while len(freed) < num_pages:
            inner = {prefix[: -self.page_size] for prefix in self.entries}
            leaves = [p for p, entry in self.entries.items() if p not in inner and entry.locks == 0]
            end = min(leaves, key=lambda p: self.entries[p].time)
            run = [self.entries.pop(end).page]
            while (end := end[: -self.page_size]) and not self.entries[end].ends:
                run.append(self.entries.pop(end).page)
            freed += run[::-1]
        return freed

    def bury(self, first_token):
        """Forget what nobody reads of epochs before the one whose tokens begin with this; its pages."""
        dead = [p for p, entry in self.entries.items() if p[0] < first_token and entry.locks == 0]
        return [self.entries.pop(prefix).page for prefix in dead]

    def num_pages(self, locked):
        return sum((entry.locks > 0) == locked for entry in self.entries.values())


def tagged(tokens, namespace, epoch):
    """The tokens as the model knows them: namespaces and epochs are alphabets of their own."""
    return tuple(token + 10 * NAMESPACES.index(namespace) + 100 * epoch for token in tokens)


def contents(cache):
    """{prefix: (page, locks, time)} of a radix cache, read off its nodes."""
    found, stack = {}, [((), child, root) for root in cache._forest.roots() for child in root.children.values()]
    while stack:
        above, node, root = stack.pop()
        tokens = above + tagged(node._key.tolist(), root.namespace, root.epoch)
        for i, page in enumerate(node.pages.tolist()):
            found[tokens[: len(above) + (i + 1) * cache.page_size]] = (page, node.ref_count, node.last_access)
        stack += [(tokens, child, root) for child in node.children.values()]
    return found


class Both:
    """Does everything to a radix cache and to the model, and compares what they answer."""

    def __init__(self, page_size):
        self.cache = RadixPrefixCache(torch.device("cpu"), page_size)
        self.model = ModelCache(page_size)
        self.locked = []
        self.num_pages_made = 0
        self.epoch = 0

    def match(self, tokens, lock, namespace=PUBLIC):
        handle = self.cache.match_prefix(np.array(tokens, np.int32), namespace).cuda_handle
        hit = self.model.match(tagged(tokens, namespace, self.epoch))
        assert handle.cached_len == len(hit)
        if lock:
            self.lock(handle, hit)

    def insert(self, tokens, lock, namespace=PUBLIC):
        whole = tagged(tokens, namespace, self.epoch)[: len(tokens) // self.model.page_size * self.model.page_size]
        pages = np.arange(self.num_pages_made, self.num_pages_made + len(whole) // self.model.page_size, dtype=np.int32)
        self.num_pages_made += len(pages)
        cached_len, handle = self.cache.insert_pages(np.array(tokens, np.int32), pages, namespace)
        assert cached_len == len(self.model.insert(whole, pages.tolist()))
        assert handle.cached_len == len(whole)
        if lock:
            self.lock(handle, whole)

    def lock(self, handle, prefix):
        self.cache.lock_handle(handle)
        self.model.lock(prefix, 1)
        self.locked.append((handle, prefix))

    def unlock(self, i):
        handle, prefix = self.locked.pop(i % len(self.locked))
        pages = [self.model.entries[part].page for part in self.model.prefixes(prefix)]
        assert handle.get_matched_pages().tolist() == pages
        self.cache.lock_handle(handle, unlock=True)
        self.model.lock(prefix, -1)
        assert sorted(self.cache.reclaim()) == sorted(self.model.bury(100 * self.epoch))

    def flush(self):
        self.epoch += 1
        assert sorted(self.cache.flush()) == sorted(self.model.bury(100 * self.epoch))

    def evict(self, num_pages):
        num_pages = min(num_pages, self.model.num_pages(locked=False))
        assert self.cache.evict_pages(num_pages).tolist() == self.model.evict(num_pages)

    def compare(self):
        expected = {prefix: (entry.page, entry.locks, entry.time) for prefix, entry in self.model.entries.items()}
        assert contents(self.cache) == expected
        num_tokens = [self.model.num_pages(locked) * self.model.page_size for locked in (False, True)]
        assert list(self.cache.size_info) == num_tokens


def random_tokens(rng, recent, page_size):
    """The start of an earlier prompt (often), then tokens of an alphabet of three."""
    start = recent[rng.integers(len(recent))] if rng.random() < 0.8 else ()
    start = start[: rng.integers(len(start) + 1)]
    tail = rng.integers(0, 3, rng.integers(3 * page_size + 2)).tolist()
    recent[rng.integers(len(recent))] = tokens = (start + tuple(tail))[: 12 * page_size + 1]
    return tokens


def run_random_operations(seed, page_size, num_operations):
    rng = np.random.default_rng(seed)
    both, recent = Both(page_size), [()] * 8
    for i in range(num_operations):
        choice, namespace = rng.random(), NAMESPACES[rng.choice(3, p=[0.7, 0.2, 0.1])]
        if choice < 0.35:
            both.insert(random_tokens(rng, recent, page_size), choice < 0.15, namespace)
        elif choice < 0.6:
            both.match(random_tokens(rng, recent, page_size), choice < 0.45, namespace)
        elif choice < 0.605:
            both.flush()
        elif choice < 0.85 and both.locked:
            both.unlock(int(rng.integers(len(both.locked))))
        elif len(both.model.entries) > 24:
            both.evict(int(rng.integers(12)))
        both.compare()
        if i % 20 == 0:
            both.cache.check_integrity()
    assert both.num_pages_made > num_operations / 4


@pytest.mark.parametrize("page_size", [1, 4])
def test_r7_random_operations_agree_with_the_model_at_every_step(page_size):
    run_random_operations(seed=0, page_size=page_size, num_operations=20_000)


@pytest.mark.nightly
@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("seed", range(10))
def test_r7_long_random_runs_agree_with_the_model_at_every_step(seed, page_size):
    run_random_operations(seed, page_size, num_operations=20_000)


TOKENS = st.lists(st.integers(0, 1), max_size=9).map(tuple)


class RadixMachine(RuleBasedStateMachine):
    """Hypothesis looks for the shortest run of operations in which cache and model disagree. Vocabulary of two."""

    @initialize(page_size=st.sampled_from([1, 2, 3]))
    def start(self, page_size):
        self.both = Both(page_size)

    @rule(tokens=TOKENS, lock=st.booleans(), namespace=st.sampled_from(NAMESPACES))
    def match(self, tokens, lock, namespace):
        self.both.match(tokens, lock, namespace)

    @rule(tokens=TOKENS, lock=st.booleans(), namespace=st.sampled_from(NAMESPACES))
    def insert(self, tokens, lock, namespace):
        self.both.insert(tokens, lock, namespace)

    @rule()
    def flush(self):
        self.both.flush()

    @precondition(lambda self: self.both.locked)
    @rule(i=st.integers(0, 9))
    def unlock(self, i):
        self.both.unlock(i)

    @rule(num_pages=st.integers(0, 9))
    def evict(self, num_pages):
        self.both.evict(num_pages)

    @invariant()
    def agree(self):
        self.both.compare()
        self.both.cache.check_integrity()


TestRadixMachine = RadixMachine.TestCase
TestRadixMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None, derandomize=True)

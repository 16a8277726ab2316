"""A radix cache that explains, and a plain account of every path that it ever had: sets of tuples, no tree."""

import numpy as np
import torch

from minisgl.core import Explanation
from minisgl.kvcache import PUBLIC, RadixPrefixCache
from minisgl.utils.math import align_down


class Remembering:
    """known: of each namespace, every path ever inserted, page by page, and every tail; purged ones are taken out.

    gone: of each path that was evicted, how many tokens had been evicted before that call and after it.
    """

    def __init__(self, page_size, ghost_tokens=10_000, eviction="lru"):
        self.cache = RadixPrefixCache(torch.device("cpu"), page_size, eviction, ghost_tokens)
        self.page_size = page_size
        self.pages = {}
        self.tails = {}
        self.gone = {}
        self.locked = []
        self.num_pages_made = self.num_evicted = 0

    def insert(self, tokens, namespace=PUBLIC, lock=False, notes_tail=False):
        count = len(tokens) // self.page_size
        numbers = np.arange(self.num_pages_made, self.num_pages_made + count, dtype=np.int32)
        self.num_pages_made += count
        handle = self.cache.insert_pages(ids(tokens), numbers, namespace).handle
        self.pages.setdefault(namespace, set()).update(self._paths(tokens))
        if not lock and not notes_tail:
            return
        self.cache.lock_handle(handle)
        tail = tokens[count * self.page_size :]
        if notes_tail and tail:
            self.cache.note_tail(handle, ids(tail), namespace)
            self.tails.setdefault(namespace, set()).add(tuple(tokens))
        if lock:
            self.locked.append(handle)
        else:
            self.cache.lock_handle(handle, unlock=True)

    def match(self, tokens, namespace=PUBLIC, lock=False):
        handle = self.cache.match_prefix(ids(tokens), namespace).cuda_handle
        if lock:
            self.cache.lock_handle(handle)
            self.locked.append(handle)

    def unlock(self, index):
        if self.locked:
            self.cache.lock_handle(self.locked.pop(index % len(self.locked)), unlock=True)
            self.cache.reclaim()

    def evict(self, num_pages, trim):
        live = self._live()
        num_pages = min(num_pages, self.cache.size_info.evictable_size // self.page_size)
        num_freed = len(self.cache.evict_pages(num_pages, trim)) * self.page_size
        after = self.num_evicted + num_freed
        self.gone |= dict.fromkeys(live - self._live(), (self.num_evicted, after))
        self.num_evicted = after

    def purge(self, prefix, namespace=None):
        """More may be forgotten than begins with the prefix: what is left is asked for."""
        self.cache.purge(namespace, ids(prefix))
        for name in [*self.pages] if namespace is None else [namespace]:
            known = self.pages.get(name, set())
            kept = {path for path in known if self._knows(path, name)}
            assert not any(path[: len(prefix)] == tuple(prefix) for path in kept), f"{prefix} was purged, and is known"
            self.pages[name] = kept
            tails = {tail for tail in self.tails.get(name, set()) if self._knows(tail, name)}
            assert not any(tail[: len(prefix)] == tuple(prefix) for tail in tails), f"{prefix} was purged, and is known"
            self.tails[name] = tails

    def check(self, tokens, namespace=PUBLIC):
        """That what is said of this prompt is what the account says."""
        tokens = tuple(tokens)
        found = self.cache.explain(ids(tokens), namespace)
        assert sum(found.causes.values()) == len(tokens)
        assert (found.causes, found.left_at) == self.expected(tokens, namespace), f"{tokens} in {namespace}"
        self._check_branch(tokens, namespace, found)
        self._check_age(tokens, namespace, found)

    def expected(self, tokens, namespace):
        size, paths = self.page_size, self.pages.get(namespace, set())
        usable = align_down(len(tokens) - 1, size)
        hit = min(self.cache.probe(ids(tokens), namespace), usable)
        known = longest(paths, self._paths(tokens))
        others = max([self.cache.probe(ids(tokens), name) for name in self.pages if name != namespace], default=0)
        left_at = max([0, *(common(path, tokens) for path in paths | self.tails.get(namespace, set()))])
        evicted = min(known, usable) - hit
        reached = max(hit + evicted, min(others, usable))
        rest = len(tokens) - reached
        if max(known, others) == len(tokens):
            below_page, last = 0, rest
        else:
            last = int(left_at == len(tokens))
            below_page = max(0, left_at - reached) - last
        causes = Explanation(
            hit=hit,
            evicted=evicted,
            other_namespace=reached - hit - evicted,
            below_page=below_page,
            last_token=last,
            never_seen=rest - below_page - last,
        ).causes
        return causes, left_at

    def _check_branch(self, tokens, namespace, found):
        left_at, branch = found.left_at, found.branch
        if left_at in (0, len(tokens)):
            assert branch == ()
            return
        every = self.pages.get(namespace, set()) | self.tails.get(namespace, set())
        goes_on = [path[left_at:] for path in every if path[:left_at] == tokens[:left_at] and len(path) > left_at]
        assert bool(branch) == bool(goes_on)
        assert len(branch) <= 8
        assert not branch or any(rest[: len(branch)] == branch for rest in goes_on)

    def _check_age(self, tokens, namespace, found):
        if not found.evicted:
            assert found.evicted_s is found.evicted_tokens is None
            return
        first = tokens[: found.hit + self.page_size]
        before, after = self.gone[namespace, first]
        assert before <= self.num_evicted - found.evicted_tokens <= after
        assert found.evicted_s >= 0

    def _knows(self, path, namespace):
        return self.cache.explain(ids(path), namespace).left_at == len(path)

    def _live(self):
        return {
            (namespace, path)
            for namespace, paths in self.pages.items()
            for path in paths
            if self.cache.probe(ids(path), namespace) == len(path)
        }

    def _paths(self, tokens):
        """The starts of `tokens` that are whole pages."""
        size = self.page_size
        return {tuple(tokens[:end]) for end in range(size, len(tokens) // size * size + 1, size)}


def ids(tokens):
    return np.array(tokens, np.int32)


def longest(known, paths):
    return max([len(path) for path in paths if path in known], default=0)


def common(a, b):
    """How many tokens both begin with."""
    pairs = zip(a, b, strict=False)
    return next((i for i, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b)))

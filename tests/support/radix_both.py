"""A radix cache and the slow account of it, side by side."""

import numpy as np
import torch
from support.radix_model import ALPHABET, NAMESPACES, ModelCache, contents, lru_victims, tagged

from minisgl.kvcache import PUBLIC, RadixPrefixCache


class Both:
    """Does everything to a radix cache and to the model, and compares what they answer."""

    def __init__(self, page_size, eviction="lru", ghost_tokens=30):
        self.cache = RadixPrefixCache(torch.device("cpu"), page_size, eviction, ghost_tokens)
        self.model = ModelCache(page_size)
        self.is_lru = eviction == "lru"
        self.spaces = set()
        self.has_expected = False
        self.locked = []
        self.kept = []
        self.watched = []
        self.known_lens = {}
        self.expected = {}
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
            p[: self.model.page_size] for p in self.model.entries if p[0] // ALPHABET == 1 + NAMESPACES.index(namespace)
        }
        return [page for first in firsts for page in self.model.purge(first)]

    def evict(self, num_pages, trim):
        num_pages = min(num_pages, self.model.num_pages(locked=False))
        predicts = self.predicts
        if predicts:
            expected = [tokens[: watch.cached_len] for watch, tokens in self.expected.items()]
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
        self.expected.pop(watch, None)
        self.cache.unwatch(watch)

    def expect(self, i, expected):
        self.has_expected = True
        watch, tokens = self.watched[i % len(self.watched)]
        self.cache.expect(watch, expected)
        if expected:
            self.expected.setdefault(watch, tokens)
        else:
            self.expected.pop(watch, None)

    def advance(self, budget):
        changed = set(self.cache.advance_watches(budget))
        for watch in self.known_lens:
            assert watch in changed or watch.cached_len == self.known_lens[watch]
            self.known_lens[watch] = watch.cached_len

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

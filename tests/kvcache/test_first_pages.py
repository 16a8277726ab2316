"""Which other namespaces are looked into for a prompt that is not cached in its own."""

import numpy as np
import torch

from minisgl.kvcache import PUBLIC, Namespace, RadixPrefixCache, first_pages
from minisgl.kvcache.eviction.lru import LRUQueue
from minisgl.kvcache.first_pages import FirstPages
from minisgl.kvcache.radix_forest import RadixForest


def known(namespaces, page):
    return [namespace.cache_salt for namespace in namespaces.find(page)]


def plant(forest, *names):
    return [forest.plant(Namespace(name)) for name in names]


def test_what_was_there_before_the_second_namespace_is_found_too():
    cache = RadixPrefixCache(torch.device("cpu"), 2, ghost_tokens=10)
    prompts = [np.array([i, i, i, i, 9], np.int32) for i in range(3)]
    for i, prompt in enumerate(prompts[:2]):
        cache.insert_pages(prompt, np.arange(2 * i, 2 * i + 2, dtype=np.int32))
    other = Namespace("other")
    cache.insert_pages(prompts[2], np.arange(4, 6, dtype=np.int32), other)
    assert [cache.explain(prompt, other).other_namespace for prompt in prompts] == [4, 4, 0]
    assert [cache.explain(prompt, PUBLIC).other_namespace for prompt in prompts] == [0, 0, 4]


def test_nothing_is_noted_of_one_namespace_alone():
    forest, pages = RadixForest(LRUQueue), FirstPages()
    for i in range(3):
        pages.added(bytes([i]), forest.public)
    assert not pages._namespaces


def test_the_latest_namespaces_of_a_page_are_kept(monkeypatch):
    monkeypatch.setattr(first_pages, "MAX_NAMESPACES", 2)
    roots, pages = plant(RadixForest(LRUQueue), "a", "b", "c", "d"), FirstPages()
    for root in roots:
        pages.added(b"page", root)
        pages.added(b"page", root)
    assert known(pages, b"page") == ["d", "c"]
    assert known(pages, b"other") == []


def test_no_more_pages_are_noted_than_may_be_and_the_oldest_go(monkeypatch):
    monkeypatch.setattr(first_pages, "MAX_PAGES", 2)
    a, b = plant(RadixForest(LRUQueue), "a", "b")
    pages = FirstPages()
    pages.added(b"0", a)
    for page in (b"1", b"2", b"3"):
        pages.added(page, b)
    assert [known(pages, page) for page in (b"1", b"2", b"3")] == [[], ["b"], ["b"]]


def test_a_namespace_that_has_gone_is_not_looked_into():
    cache = RadixPrefixCache(torch.device("cpu"), 1, ghost_tokens=10)
    prompt, other = np.array([1, 2, 3], np.int32), Namespace("other")
    cache.insert_pages(prompt, np.arange(3, dtype=np.int32))
    cache.insert_pages(prompt, np.arange(3, 6, dtype=np.int32), other)
    cache.purge(other)
    assert cache.explain(prompt, Namespace("third")).other_namespace == 2
    cache.purge(PUBLIC)
    assert cache.explain(prompt, Namespace("third")).never_seen == 3

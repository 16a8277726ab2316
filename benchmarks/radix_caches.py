"""Prefix caches behind the calls that `bench_radix.py` times, and ours among them; `radix_peers.py` has the others.

What a scheduler has at hand before it calls (a prompt in the form that the cache takes, slots for what is new) is made
outside the timed calls, for every cache.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
import torch
from radix_workloads import FreePages, Int32Array
from stopwatch import Stopwatch

from minisgl.kvcache import RadixPrefixCache


class Clock:
    """CPU time of one cache's calls, of matches apart from the others."""

    def __init__(self) -> None:
        self.matches = Stopwatch()
        self.others = Stopwatch()

    @property
    def spent_us(self) -> float:
        return sum(self.matches.times) + sum(self.others.times)


class PrefixCache(ABC):
    """One prefix cache, which holds `capacity` tokens. is_tree: false for tables of hashed blocks."""

    name: ClassVar[str]
    is_tree: ClassVar[bool] = True

    def __init__(self, page_size: int, capacity: int) -> None:
        self.page_size = page_size

    @abstractmethod
    def prompt(self, ids: Int32Array) -> Any:
        """What the cache's scheduler has of a prompt before it looks it up; new memory each time."""

    @abstractmethod
    def match(self, prompt: Any) -> Any:
        """The longest cached prefix."""

    @abstractmethod
    def cached_len(self, matched: Any) -> int:
        """Tokens of a match."""

    @abstractmethod
    def put(self, ids: Int32Array, free: FreePages) -> None:
        """Leave `ids` in the cache, unlocked; nothing is timed."""

    @abstractmethod
    def evict(self, num_tokens: int) -> Any:
        """Free at least so many tokens."""

    @abstractmethod
    def turn(self, clock: Clock, ids: Int32Array, free: FreePages) -> None:
        """Match, lock, read the slots, insert, unlock."""

    @abstractmethod
    def serve(self, clock: Clock, ids: Int32Array, free: FreePages) -> Any:
        """A request until it runs: match, lock, make room, read, insert, lock what was inserted. The last lock."""

    @abstractmethod
    def finish(self, clock: Clock, lock: Any) -> None:
        """Give the lock of `serve` back."""


class TreeCache(PrefixCache):
    """A tree that is told the slots of what is new, beside which someone else keeps the free ones."""

    @abstractmethod
    def lock(self, matched: Any) -> Any:
        """Keep it from eviction; what `unlock` takes."""

    @abstractmethod
    def unlock(self, lock: Any) -> None: ...

    @abstractmethod
    def read(self, matched: Any) -> Any:
        """The slots of a match, one tensor or array."""

    @abstractmethod
    def join(self, read: Any, new: Int32Array) -> Any:
        """`read` and the pages `new` as `insert` takes them."""

    @abstractmethod
    def insert(self, prompt: Any, values: Any, matched: Any) -> Any: ...

    @abstractmethod
    def freed(self, evicted: Any) -> Int32Array:
        """The pages that `evict` freed."""

    def lock_inserted(self, prompt: Any, inserted: Any) -> Any:
        return self.lock(inserted)

    def put(self, ids: Int32Array, free: FreePages) -> None:
        prompt = self.prompt(self._whole_pages(ids))
        matched = self.match(prompt)
        self.insert(prompt, self.join(self.read(matched), free.take(self._num_new(ids, matched))), matched)

    def turn(self, clock: Clock, ids: Int32Array, free: FreePages) -> None:
        clock.others(self.unlock, self._store(clock, ids, free)[0])

    def serve(self, clock: Clock, ids: Int32Array, free: FreePages) -> Any:
        lock, prompt, inserted = self._store(clock, ids, free)
        running = clock.others(self.lock_inserted, prompt, inserted)
        clock.others(self.unlock, lock)
        return running

    def finish(self, clock: Clock, lock: Any) -> None:
        clock.others(self.unlock, lock)

    def _store(self, clock: Clock, ids: Int32Array, free: FreePages) -> tuple[Any, Any, Any]:
        """Match, lock, make room, read and insert: the lock, the prompt, what was inserted."""
        prompt = self.prompt(self._whole_pages(ids))
        matched = clock.matches(self.match, prompt)
        lock = clock.others(self.lock, matched)
        num_new = self._num_new(ids, matched)
        if num_new > free.num_free:
            evicted = clock.others(self.evict, (num_new - free.num_free) * self.page_size)
            free.give(self.freed(evicted))
        read = clock.others(self.read, matched)
        return lock, prompt, clock.others(self.insert, prompt, self.join(read, free.take(num_new)), matched)

    def _whole_pages(self, ids: Int32Array) -> Int32Array:
        return ids[: len(ids) // self.page_size * self.page_size]

    def _num_new(self, ids: Int32Array, matched: Any) -> int:
        return len(ids) // self.page_size - self.cached_len(matched) // self.page_size


class Minisgl(TreeCache):
    """Ours: arrays and page numbers in and out."""

    name = "minisgl"

    def __init__(self, page_size: int, capacity: int) -> None:
        super().__init__(page_size, capacity)
        self._cache = RadixPrefixCache(torch.device("cpu"), page_size)

    def prompt(self, ids: Int32Array) -> Any:
        return ids.copy()

    def match(self, prompt: Any) -> Any:
        return self._cache.match_prefix(prompt).cuda_handle

    def cached_len(self, matched: Any) -> int:
        return matched.cached_len

    def lock(self, matched: Any) -> Any:
        self._cache.lock_handle(matched)
        return matched

    def unlock(self, lock: Any) -> None:
        self._cache.lock_handle(lock, unlock=True)

    def read(self, matched: Any) -> Any:
        return matched.get_matched_pages()

    def join(self, read: Any, new: Int32Array) -> Any:
        return np.concatenate([read, new])

    def insert(self, prompt: Any, values: Any, matched: Any) -> Any:
        return self._cache.insert_pages(prompt, values).handle

    def evict(self, num_tokens: int) -> Any:
        return self._cache.evict_pages(num_tokens // self.page_size)

    def freed(self, evicted: Any) -> Int32Array:
        return evicted

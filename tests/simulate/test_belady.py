from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache

import pytest
from support.traces import TAU_AIRLINE, make_request, make_trace, prompts

from minisgl.simulate.belady import best_hits, next_uses, unique_pages
from minisgl.simulate.replay import replay
from minisgl.simulate.trace import Trace, read_trace
from minisgl.simulate.workload import make_workload

Path = tuple[int, ...]
Pages = frozenset[Path]  # each page is the path that ends with it


def optimum(trace: Trace, num_pages: int) -> int:
    workload = make_workload(trace, 1)
    return best_hits(workload, num_pages, next_uses(workload)).hit_tokens


def test_the_page_whose_next_use_is_farthest_goes():
    # Room for two. 3 pushes out 2 (next used at the end) and keeps 1; then 1 hits, 2 pushes out what is not used again.
    assert optimum(prompts([1], [2], [3], [1], [2]), 2) == 1


def test_a_prefix_is_not_given_up_before_what_continues_it():
    # [1, 2] is cached, 3 needs a page: 2 goes, not 1. [1, 4] then hits 1.
    assert optimum(prompts([1, 2], [3], [1, 4]), 2) == 1


def test_what_never_comes_again_goes_first():
    assert optimum(prompts([1, 2, 3], [4], [1, 2]), 3) == 2


def test_the_output_of_one_turn_is_a_prefix_of_the_next():
    trace = make_trace([make_request([1, 2], [3]), make_request([1, 2, 3, 4])])
    assert optimum(trace, 4) == 3


def test_pages_of_the_whole_trace_are_counted_once():
    assert unique_pages(make_workload(prompts([1, 2], [1, 2, 3], [4]), 1)) == 4


@pytest.mark.parametrize("seed", range(60))
def test_no_choice_of_evictions_hits_more(seed: int):
    rng = random.Random(seed)
    paths = [random_path(rng) for _ in range(7)]
    num_pages = rng.randint(max(map(len, paths)), 5)
    assert optimum(as_trace(paths), num_pages) == best_of_all(paths, num_pages)


@pytest.mark.parametrize("num_pages", [750, 1500, 3000])
def test_no_policy_hits_more_on_real_requests(num_pages: int):
    workload = make_workload(read_trace(TAU_AIRLINE), 16)
    best = best_hits(workload, num_pages, next_uses(workload)).hit_tokens
    assert all(replay(workload, num_pages, policy).hit_tokens <= best for policy in ("lru", "lfu", "fifo", "arc"))
    assert replay(workload, num_pages, "lru", lookahead=32).hit_tokens <= best


def random_path(rng: random.Random) -> Path:
    return tuple(rng.randint(0, 1) if depth else rng.randint(0, 2) for depth in range(rng.randint(1, 3)))


def as_trace(paths: list[Path]) -> Trace:
    """Numbers for pages, as a trace has them: equal just where the whole path is."""
    numbers: dict[Path, int] = {}
    return prompts(*([numbers.setdefault(page, len(numbers)) for page in prefixes(path)] for path in paths))


def prefixes(path: Path) -> list[Path]:
    return [path[:length] for length in range(1, len(path) + 1)]


def best_of_all(paths: list[Path], num_pages: int) -> int:
    """Hits of the best of all ways to evict unlocked leaves, page by page, when and only when room is needed."""

    @cache
    def best(index: int, cached: Pages) -> int:
        if index == len(paths):
            return 0
        wanted = frozenset(prefixes(paths[index]))
        num_missing = len(wanted | cached) - num_pages
        rest = (best(index + 1, left | wanted) for left in after_evictions(cached, wanted, num_missing))
        return len(wanted & cached) + max(rest)

    return best(0, frozenset())


def after_evictions(cached: Pages, locked: Pages, count: int) -> Iterator[Pages]:
    if count <= 0:
        yield cached
        return
    for page in cached - locked:
        if not any(other[: len(page)] == page and other != page for other in cached):
            yield from after_evictions(cached - {page}, locked, count - 1)

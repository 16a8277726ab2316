"""Which sizes have graphs, and how often each is run before it is captured."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import pytest
import torch

from minisgl.engine.graphs import Captured, GraphPool, Key, host_bound, padded_sizes, prompt_sizes


class Device:
    """Runs what is launched, which takes the host `launch_s` and itself `run_s`. time: of the host."""

    def __init__(self, launch_s: float, run_s: float) -> None:
        self.time = self._end = 0.0
        self._launch_s, self._run_s = launch_s, run_s
        self.num_runs = 0

    def launch(self) -> None:
        self.num_runs += 1
        self._end = max(self._end, self.time) + self._run_s
        self.time += self._launch_s

    def synchronize(self) -> None:
        self.time = max(self.time, self._end)


class Pool(GraphPool):
    """Of graphs that are not recorded, on no stream."""

    def _run(self, key: Key, compute: Callable[[], object]) -> None:
        compute()
        self._has_run.add(key)

    def _record(self, compute: Callable[[], object]) -> Captured:
        return Captured(compute, None)


def use(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "perf_counter", lambda: device.time)
    monkeypatch.setattr(torch.cuda, "synchronize", device.synchronize)


@pytest.mark.parametrize(("launch_ms", "run_ms", "expected"), [(10, 2, True), (10, 10.5, True), (10, 15, False)])
def test_a_batch_gains_by_a_graph_if_the_host_launches_it_longer_than_the_device_runs(
    monkeypatch: pytest.MonkeyPatch, launch_ms: float, run_ms: float, expected: bool
) -> None:
    """The first run, which compiles, does not count."""
    device = Device(launch_ms, run_ms)
    use(device, monkeypatch)
    slow_at_first = iter([5000.0])

    def compute() -> None:
        device.time += next(slow_at_first, 0.0)
        device.launch()

    assert Pool().is_host_bound(Key(16, False), compute) is expected


def test_what_was_timed_is_captured_without_another_run(monkeypatch: pytest.MonkeyPatch) -> None:
    device, pool = Device(1.0, 1.0), Pool()
    use(device, monkeypatch)
    pool.is_host_bound(Key(16, False), device.launch)
    assert device.num_runs == 2
    pool.capture(Key(16, False), device.launch)
    assert device.num_runs == 2
    pool.capture(Key(16, True), device.launch)
    assert device.num_runs == 3
    assert pool.size_for(9) == 16


@pytest.mark.parametrize("border", range(15))
def test_few_sizes_are_timed_to_find_the_last_that_gains(border: int) -> None:
    sizes, asked = prompt_sizes(2048), []
    assert len(sizes) == 14

    def is_host_bound(size: int) -> bool:
        asked.append(size)
        return size in sizes[:border]

    assert host_bound(sizes, is_host_bound) == sizes[:border]
    assert len(asked) == len(set(asked)) <= 4


def test_where_no_prompts_can_be_captured_nothing_is_timed() -> None:
    assert host_bound([], lambda size: pytest.fail("timed")) == []


@pytest.mark.parametrize(("largest", "sizes"), [(1, [1]), (3, [1, 2, 3]), (40, [1, 2, 4, 8, 16, 32, 40])])
def test_graphs_are_dense_for_small_batches_and_reach_the_largest(largest: int, sizes: list[int]) -> None:
    assert padded_sizes(largest) == sizes


def test_graphs_of_prompts_have_a_half_more_tokens_from_one_to_the_next_at_most() -> None:
    sizes = prompt_sizes(2048)
    assert sizes == sorted(sizes)
    assert sizes[-1] == 2048
    assert max(b / a for a, b in itertools.pairwise(sizes[1:])) <= 1.5
    assert prompt_sizes(100) == [16, 32, 48, 64, 96]
    assert prompt_sizes(8) == []

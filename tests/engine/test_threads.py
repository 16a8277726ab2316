from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from minisgl.engine import threads


@pytest.fixture(autouse=True)
def _threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("given", "cores", "expected"), [(4, 2, 2), (1, 2, 1), (2, 2, 2)])
def test_there_are_no_more_threads_than_cores(
    given: int, cores: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(threads, "physical_cores", lambda: cores)
    torch.set_num_threads(given)
    threads.limit_threads()
    assert torch.get_num_threads() == expected


def test_a_number_that_the_user_has_set_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    monkeypatch.setattr(threads, "physical_cores", lambda: 2)
    torch.set_num_threads(4)
    threads.limit_threads()
    assert torch.get_num_threads() == 4

"""Batches say which of their rows begin with the same pages. (Every batch of other tests is recounted as well.)"""

from __future__ import annotations

import pytest
from support.serving import Serving

from minisgl.core import Batch

SYSTEM = [20, 21] * 8
OVERLAP = pytest.mark.parametrize("overlap", [False, True], ids=["plain", "overlap"])


def groups_of(batch: Batch) -> list[tuple[list[int], int, int]]:
    return [(group.rows.tolist(), group.begin, group.end) for group in batch.groups]


def serve(serving: Serving, num_questions: int = 3, max_tokens: int = 6) -> list[Batch]:
    """Questions behind one system prompt, which is cached already."""
    serving.generate([SYSTEM], max_tokens=1)
    before = len(serving.engine.batches)
    for number in range(num_questions):
        serving.submit([*SYSTEM, 30 + number, 40], max_tokens=max_tokens + number)
    serving.run()
    return [forward_input.batch for forward_input in serving.engine.batches[before:]]


@OVERLAP
def test_rows_are_grouped_from_their_first_batch_to_their_last(overlap: bool) -> None:
    batches = serve(Serving(num_pages=32, page_size=4, overlap=overlap))
    for batch in batches:
        rows = list(range(len(batch.reqs)))
        assert groups_of(batch) == ([(rows, 0, 16)] if len(rows) > 1 else [])
    assert max(len(batch.reqs) for batch in batches) == 3


@OVERLAP
def test_a_batch_of_the_same_rows_has_the_very_same_groups(overlap: bool) -> None:
    batches = [batch for batch in serve(Serving(overlap=overlap)) if not batch.is_prefill and len(batch.reqs) == 3]
    assert len(batches) >= 4
    assert all(batch.groups is batches[1].groups for batch in batches[1:])


def test_prompts_and_decodes_share_what_they_begin_with() -> None:
    serving = Serving(overlap=True)
    serving.generate([SYSTEM], max_tokens=1)
    serving.submit([*SYSTEM, 30], max_tokens=9)
    serving.step()
    serving.step()
    serving.submit([*SYSTEM, 31], max_tokens=9)
    serving.step()
    batch = serving.engine.batches[-1].batch
    assert [req.is_prefill for req in batch.reqs] == [False, True]
    assert groups_of(batch) == [([0, 1], 0, 16)]


def test_the_groups_change_when_a_row_leaves_and_another_takes_its_place() -> None:
    serving = Serving(overlap=True, max_running_req=2)
    serving.generate([SYSTEM], max_tokens=1)
    for prompt in ([*SYSTEM, 30], [*SYSTEM[:8], 31], [*SYSTEM, 32]):
        serving.submit(prompt, max_tokens=4 if prompt[-1] == 31 else 12)
    serving.run()
    ends = [group.end for forward_input in serving.engine.batches for group in forward_input.batch.groups]
    assert sorted(set(ends)) == [8, 16]


def test_without_a_cache_that_shares_there_are_none() -> None:
    assert not any(batch.groups for batch in serve(Serving(cache_type="naive")))


def test_with_shared_prefixes_off_there_are_none() -> None:
    assert not any(batch.groups for batch in serve(Serving(shared_prefix=False)))

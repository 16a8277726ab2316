"""The buffer in which a step's values travel together."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from minisgl.engine.staging import BufferStaging

CPU = torch.device("cpu")
VALUES = np.array([7, 8], np.int32)


class Event:
    """One that has passed when it is waited for."""

    num_waits = 0

    def query(self) -> bool:
        return False

    def synchronize(self) -> None:
        self.num_waits += 1


def test_values_arrive_with_their_padding_where_they_were_before() -> None:
    staging = BufferStaging(256, CPU)
    addresses = []
    for values in (VALUES, VALUES[:1], VALUES):
        staging.begin()
        first, second = staging.add(values, 3, fill=-1), staging.add(np.array([0.5]), 2)
        staging.send()
        assert first.tolist() == [*values.tolist(), *[-1] * (3 - len(values))]
        assert second.tolist() == [0.5, 0.0]
        addresses.append((first.data_ptr(), second.data_ptr()))
    assert addresses[0] == addresses[1] == addresses[2]


def test_nothing_arrives_before_it_is_sent() -> None:
    staging = BufferStaging(256, CPU)
    staging.begin()
    values = staging.add(VALUES, 2)
    staging.send()
    staging.begin()
    assert staging.add(VALUES + 1, 2).tolist() == values.tolist() == [7, 8]
    staging.send()
    assert values.tolist() == [8, 9]


def test_what_does_not_fit_travels_by_itself_unless_a_graph_wants_it() -> None:
    staging = BufferStaging(16, CPU)
    staging.begin()
    staging.add(VALUES)
    alone = staging.add(VALUES)
    staging.send()
    assert alone.tolist() == [7, 8]
    with pytest.raises(AssertionError, match="a graph wants 24 bytes of a staging buffer of 16"):
        staging.add(VALUES, 2)


def test_a_host_buffer_is_written_again_only_when_it_has_been_read() -> None:
    staging, events = BufferStaging(64, CPU), [Event() for _ in range(3)]
    waits = []
    for event in events:
        staging.begin()
        staging.add(VALUES)
        staging.send()
        staging.keep_until(event)  # type: ignore[arg-type]
        waits.append([each.num_waits for each in events])
    assert waits == [[0, 0, 0], [0, 0, 0], [1, 0, 0]]

from __future__ import annotations

from contextlib import ExitStack

import pytest

from minisgl.server.errors import ApiError
from minisgl.server.gate import Gate


def refusal(gate: Gate, num_sequences: int = 1) -> ApiError:
    with pytest.raises(ApiError) as caught, gate.enter(num_sequences):
        pass
    return caught.value


def test_of_a_hundred_at_once_those_that_fit_are_let_in_and_the_rest_told_when_to_come_again() -> None:
    gate = Gate(max_running=4, max_queued=8)
    refused: list[ApiError] = []
    with ExitStack() as inside:
        for _ in range(100):
            try:
                inside.enter_context(gate.enter(1))
            except ApiError as error:
                refused.append(error)
        assert (gate.num_open, len(refused)) == (12, 88)
    assert {error.status for error in refused} == {429}
    assert refused[0].headers == {"Retry-After": "1"}
    assert gate.num_open == 0


def test_a_request_counts_as_many_sequences_as_it_has() -> None:
    gate = Gate(max_running=2, max_queued=2)
    with gate.enter(3):
        assert refusal(gate, 2).status == 429
        with gate.enter(1):
            assert gate.num_open == 4


def test_what_never_fits_is_the_clients_mistake_and_not_to_be_tried_again() -> None:
    error = refusal(Gate(max_running=2, max_queued=2), 5)
    assert error.status == 400
    assert "5 sequences" in error.message
    assert "Retry-After" not in error.headers


def test_the_count_returns_whatever_happens_inside() -> None:
    gate = Gate(max_running=1, max_queued=0)
    with pytest.raises(ZeroDivisionError), gate.enter(1):
        raise ZeroDivisionError
    assert gate.num_open == 0


def test_a_place_can_be_given_back_before_the_block_ends_and_counts_once() -> None:
    gate = Gate(max_running=2, max_queued=0)
    with gate.enter(2) as leave:
        leave()
        leave()
        assert gate.num_open == 0
        with gate.enter(1):
            assert gate.num_open == 1
    assert gate.num_open == 0


def test_draining_lets_nobody_in_and_everybody_out() -> None:
    gate = Gate(max_running=4, max_queued=0)
    with gate.enter(2):
        gate.drain()
        assert refusal(gate).status == 503
        assert gate.num_open == 2
    assert gate.num_open == 0

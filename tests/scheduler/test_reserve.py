"""How much room a request is promised, from what others generated before it."""

from __future__ import annotations

import numpy as np

from minisgl.core import SamplingParams
from minisgl.scheduler.cache_manager import CacheManager
from minisgl.scheduler.request import Request
from minisgl.scheduler.reserve import FEWEST, WINDOW, FullReserve, LearnedReserve, OutputLengths


def make_request(prompt_len: int = 10, max_tokens: int = 100, generated: int = 0) -> Request:
    ids = np.zeros(prompt_len, np.int32)
    request = Request(0, ids, SamplingParams(), 0, frozenset(), prompt_len + max_tokens)
    manager = CacheManager(1000, 1, 1, 1000, "naive")
    allocation = manager.admit(manager.match(ids), prompt_len)
    assert allocation is not None
    request.start(allocation)
    for _ in range(generated):
        request.append(1)
    return request


def learned(*lengths: int, max_tokens: int = 100) -> LearnedReserve:
    reserve = LearnedReserve()
    for length in lengths:
        reserve.finished(make_request(max_tokens=max_tokens, generated=length))
    return reserve


def test_full_is_the_prompt_and_all_tokens_but_the_last() -> None:
    assert FullReserve().kv_len(make_request()) == 10 + 100 - 1


def test_nothing_is_concluded_from_a_few_outputs() -> None:
    assert learned(*[7] * (FEWEST - 1)).kv_len(make_request()) == 10 + 100 - 1
    assert learned(*[7] * FEWEST).kv_len(make_request()) == 10 + 7 - 1


def test_the_expected_length_is_one_that_seven_in_ten_reach_of_those_that_went_on_as_long() -> None:
    lengths = OutputLengths()
    for length in range(10, 20):
        lengths.add(length)
    assert lengths.expected(0) == 12
    assert lengths.expected(14) == 16
    assert lengths.expected(18) == 19


def test_an_output_that_outlives_the_others_is_expected_to_last_as_long_again() -> None:
    reserve = learned(*[7] * 20)
    assert reserve.kv_len(make_request(generated=9)) == 10 + 2 * 9 + 1 - 1
    assert reserve.kv_len(make_request(generated=60)) == 10 + 100 - 1


def test_outputs_of_another_size_of_max_tokens_say_nothing() -> None:
    reserve = learned(*[5] * 20, max_tokens=8)
    assert reserve.kv_len(make_request(max_tokens=1000)) == 10 + 1000 - 1
    assert reserve.kv_len(make_request(max_tokens=9)) == 10 + 5 - 1


def test_old_outputs_are_forgotten() -> None:
    assert learned(*[90] * 50, *[7] * WINDOW).kv_len(make_request()) == 10 + 7 - 1


def test_a_retraction_makes_careful_and_ends_make_bold_again() -> None:
    reserve = learned(*[10] * 20)
    usual = reserve.kv_len(make_request())
    reserve.retracted()
    careful = reserve.kv_len(make_request())
    assert careful == usual + 18
    for _ in range(10):
        reserve.retracted()
    assert reserve.kv_len(make_request()) == 10 + 100 - 1
    for _ in range(60):
        reserve.finished(make_request(generated=10))
    assert usual <= reserve.kv_len(make_request()) <= usual + 1


def test_what_a_request_has_is_always_covered() -> None:
    """Also for one that asks for no token, and for one that was retracted."""
    assert LearnedReserve().kv_len(make_request(max_tokens=0)) == 10
    request = make_request(generated=30)
    request.prefill_len = request.num_ids
    assert learned(*[7] * 20).kv_len(request) >= 40

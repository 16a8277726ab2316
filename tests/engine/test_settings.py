"""What the sampling kernels read of each request."""

import numpy as np
import pytest

from minisgl.core import Req, SamplingParams
from minisgl.core.seeds import uniform
from minisgl.engine.settings import SettingsTable

V = 100
GREEDY = SamplingParams(top_k=5, top_p=0.5, min_p=0.5)
HOT = SamplingParams(temperature=1.5)
QWEN = SamplingParams(temperature=0.6, top_k=20, top_p=0.95, min_p=0.01)


def make_req(params, seed=0, num_generated=0):
    ids = np.array([1, 2, *[3] * num_generated], dtype=np.int32)
    return Req(
        uid=0, table_idx=0, cached_len=0, device_len=len(ids), max_device_len=99, prompt_len=2, input_ids=ids,
        sampling_params=params, seed=seed,
    )  # fmt: skip


def test_a_row_is_temperature_number_top_k_top_p_and_min_p():
    rows = SettingsTable(V).rows([make_req(QWEN, seed=-7, num_generated=3), make_req(HOT, seed=2**63 - 1)])
    assert rows.tolist() == [[0.6, uniform(-7, 3), 20, 0.95, 0.01], [1.5, uniform(2**63 - 1, 0), 0, 1, 0]]


def test_a_greedy_row_has_no_filters():
    assert SettingsTable(V).rows([make_req(GREEDY)]).tolist() == [[0, 0, 0, 1, 0]]


@pytest.mark.parametrize(("top_k", "expected"), [(-1, 0), (0, 0), (1, 1), (V - 1, V - 1), (V, 0), (2**63 - 1, 0)])
def test_a_top_k_that_keeps_every_token_is_off(top_k, expected):
    rows = SettingsTable(V).rows([make_req(SamplingParams(temperature=1, top_k=top_k))])
    assert rows[0, 2] == expected


@pytest.mark.parametrize(("temperature", "expected"), [(1e-300, 1e-20), (1e300, 1e20)])
def test_a_temperature_is_kept_where_float32_is_finite(temperature, expected):
    assert SettingsTable(V).rows([make_req(SamplingParams(temperature=temperature))])[0, 0] == expected


def test_a_table_that_is_asked_again_gives_what_a_new_one_would():
    """Rows leave, come, move and get numbers of their own; two requests may share parameters."""
    table = SettingsTable(V)
    batches = [[], [HOT, QWEN], [HOT, QWEN], [QWEN, HOT, GREEDY], [GREEDY], [GREEDY, GREEDY], [QWEN, QWEN, HOT], []]
    for step, batch in enumerate(batches):
        reqs = [make_req(params, seed=row, num_generated=step) for row, params in enumerate(batch)]
        assert np.array_equal(table.rows(reqs), SettingsTable(V).rows(reqs))


def test_special_rows_may_be_edited_or_want_logprobs():
    special = [
        SamplingParams(logprobs=0),
        SamplingParams(min_tokens=3),
        SamplingParams(logit_bias={1: 2.0}),
        SamplingParams(repetition_penalty=1.1),
        SamplingParams(presence_penalty=0.5),
        SamplingParams(frequency_penalty=-0.5),
    ]
    reqs = [make_req(params) for params in [HOT, *special, QWEN]]
    assert SettingsTable(V).special(reqs) == [1, 2, 3, 4, 5, 6]

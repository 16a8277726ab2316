"""Which batches the engine has to compute call by call."""

from __future__ import annotations

import numpy as np

from minisgl.core import Batch, Req, SamplingParams
from minisgl.engine.engine import wants_prompt_logprobs
from minisgl.engine.graphs import NO_UPDATE


def req(cached_len: int, prompt_logprobs: int | None, prompt_len: int = 8) -> Req:
    ids = np.zeros(20, np.int32)
    params = SamplingParams(prompt_logprobs=prompt_logprobs)
    return Req(0, 0, cached_len, cached_len + 1, 20, prompt_len, ids, params)


def test_a_prompt_token_that_comes_alone_still_has_a_logprob_to_give():
    assert wants_prompt_logprobs(Batch((req(9, None), req(3, 0)), NO_UPDATE, step=0))
    assert wants_prompt_logprobs(Batch((req(3, 0), req(3, None)), NO_UPDATE, step=0))


def test_decodes_have_given_theirs():
    assert not wants_prompt_logprobs(Batch((req(9, 0), req(8, 2), req(3, None)), NO_UPDATE, step=0))

"""What the sampling kernels read of each request: an array, made anew each step from what has not changed.

Shape letters: N rows that sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_

import numpy as np
import numpy.typing as npt

from minisgl.core import Req, SamplingParams
from minisgl.core.req import Member
from minisgl.core.reqs import columns_of, members_of
from minisgl.core.seeds import streams, uniforms
from minisgl.engine.penalties import may_edit
from minisgl.kernel import NUM_SETTINGS

_COLDEST, _HOTTEST = 1e-20, 1e20  # float32 stays finite; colder than this is greedy anyway
_UNIFORM = 1  # the column that changes every step

Rows = npt.NDArray[np.float64]


def clipped_temperature(params: SamplingParams) -> float:
    """What scores are divided by."""
    return min(max(params.temperature, _COLDEST), _HOTTEST)


class SettingsTable:
    """The settings of the last rows asked for, so that a step writes only the random numbers of rows that go on."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._members: Sequence[Req | Member] = ()
        self._params: list[SamplingParams] = []
        self._seeds: list[int] = []
        self._streams = streams(np.empty(0, np.int64))
        self._prompt_lens = np.empty(0, np.int32)
        self._rows: Rows = np.empty((0, NUM_SETTINGS))
        self._draws = False
        self._is_special = np.empty(0, np.bool_)
        self._special: list[int] = []

    def rows(self, reqs: Sequence[Req]) -> Rows:
        """[N, 5] as `kernel.triton.sampling.sample_tokens` takes them. Valid until the next call."""
        self._update(members_of(reqs))
        if self._draws:
            self._rows[:, _UNIFORM] = uniforms(self._streams, columns_of(reqs).device_lens - self._prompt_lens)
        return self._rows

    def special(self, reqs: Sequence[Req]) -> list[int]:
        """Rows whose logits may be edited, or whose log-probabilities are wanted."""
        self._update(members_of(reqs))
        return self._special

    def _update(self, members: Sequence[Req | Member]) -> None:
        """Make the rows those of `members`. Objects that were there before keep theirs, wherever they stand now."""
        if members is self._members:
            return
        self._members = members
        self._prompt_lens = np.array([member.prompt_len for member in members], np.int32)
        seeds, params = [member.seed for member in members], [member.sampling_params for member in members]
        if seeds != self._seeds:
            self._seeds, self._streams = seeds, streams(np.array(seeds, np.int64))
        if len(params) == len(self._params) and all(map(is_, params, self._params)):
            return
        known = {id(p): row for row, p in enumerate(self._params)}
        places = [known.get(id(p), -1) for p in params]
        new = [row for row, place in enumerate(places) if place < 0]
        # Place -1 is the last one: overwritten at once, but there must be one.
        self._rows = np.vstack([self._rows, np.zeros((1, NUM_SETTINGS))])[places]
        self._is_special = np.append(self._is_special, False)[places]
        for row in new:
            self._rows[row] = self._row(params[row])
            self._is_special[row] = params[row].logprobs is not None or may_edit(params[row])
        self._rows[:, _UNIFORM] = 0
        self._params = params
        self._draws = bool((self._rows[:, 0] > 0).any())
        self._special = self._is_special.nonzero()[0].tolist()

    def _row(self, params: SamplingParams) -> tuple[float, ...]:
        if params.is_greedy:
            return 0.0, 0.0, 0.0, 1.0, 0.0
        top_k = params.top_k if 0 < params.top_k < self._vocab_size else 0
        return clipped_temperature(params), 0.0, top_k, params.top_p, params.min_p

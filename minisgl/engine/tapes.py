"""Forward passes of few tokens on a CPU, played from tapes: there the calls that they are made of take the host as long
as the work itself.

Shape letters: T tokens in the batch, H hidden size.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch

from minisgl.core import Context
from minisgl.engine.inputs import StepInputs
from minisgl.kernel.tape import Arena, Tape, record
from minisgl.utils.logging import get_logger

logger = get_logger(__name__)
MOST_TOKENS = 128  # of a forward pass with a tape: more are seldom as many as before, and take long enough

Forward = Callable[[torch.Tensor, torch.Tensor, Context], torch.Tensor]


class _Place(NamedTuple):
    """What a tape reads: token ids and positions [T], and a context with slots and metadata at one address."""

    input_ids: torch.Tensor
    positions: torch.Tensor
    ctx: Context


class ModelTapes:
    """Runs a model's `forward` for batches of up to MOST_TOKENS tokens.

    There is a tape for every number of tokens that comes twice. A model whose forward pass can have none runs as it is.
    num_ranks: that share the model. What several send each other goes past torch's dispatcher, so they have no tapes.
    """

    def __init__(self, forward: Forward, num_ranks: int = 1) -> None:
        self._forward = forward
        self._arena = Arena()
        self._seen: set[tuple[int, int]] = set()
        self._tapes: dict[tuple[int, int], tuple[Tape, _Place]] = {}
        self._refused = num_ranks > 1

    def run(self, inputs: StepInputs, ctx: Context) -> torch.Tensor:
        """Hidden states [T, H], which the next call may overwrite."""
        key = len(inputs.input_ids), torch.get_num_threads()
        if key in self._tapes:
            tape, place = self._tapes[key]
            _refill(place, inputs, ctx)
            hidden: torch.Tensor = tape.play()
            return hidden
        if self._refused or key[0] > MOST_TOKENS or not ctx.attn_backend.can_record:
            return self._forward(inputs.input_ids, inputs.positions, ctx)
        if key not in self._seen:
            self._seen.add(key)
            return self._forward(inputs.input_ids, inputs.positions, ctx)
        return self._record(key, inputs, ctx)

    def _record(self, key: tuple[int, int], inputs: StepInputs, ctx: Context) -> torch.Tensor:
        metadata = ctx.attn_backend.pin(ctx.attn_metadata)
        place = _Place(inputs.input_ids.clone(), inputs.positions.clone(), ctx.with_step(metadata, ctx.out_loc.clone()))
        tape = record(partial(self._forward, *place), self._arena)
        if tape.refused is None:
            self._tapes[key] = tape, place
        else:
            logger.info("the model's forward pass is not played from tapes: %s", tape.refused)
            self._refused = True
        result: torch.Tensor = tape.result
        return result


def _refill(place: _Place, inputs: StepInputs, ctx: Context) -> None:
    """Put what a batch of as many tokens gives where the tape reads it."""
    place.input_ids.copy_(inputs.input_ids)
    place.positions.copy_(inputs.positions)
    place.ctx.out_loc.copy_(ctx.out_loc)
    ctx.attn_backend.refill(place.ctx.attn_metadata, ctx.attn_metadata)

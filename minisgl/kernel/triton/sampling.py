"""The next token of every row in two launches, without the host: greedy, drawn, and drawn from what filters leave.

A row of logits is cut into blocks of 256. The first kernel gives each block's best logit and its mass relative to that;
the second finds a row's block among those, and reads only this block again. Rows with filters narrow the blocks down
first (`sampling_filters`). What a row gives depends on its own logits and settings alone.
Shape letters: N rows, V vocabulary, K blocks of a row.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from minisgl.kernel.torch_ops import NUM_SETTINGS
from minisgl.kernel.triton.launch import begin_next, programmatic, wait_for_last
from minisgl.kernel.triton.sampling_filters import draw_filtered
from minisgl.kernel.triton.sampling_parts import draw_in_block, first_above, load_blocks

BLOCK = 256
_SCAN_BLOCKS, _SCAN_WARPS = 16, 4  # a warp reduces whole blocks, so that nothing crosses warps
_PICK_BYTES, _PICK_WARPS = 16_384, 8  # of logits at a time: more do not fit into the registers of two programs
# Otherwise a kernel would be compiled again, maybe in the middle of serving, when one of these lies differently.
_ANY_ALIGNMENT = ("settings", "maxima", "sums", "kept_blocks", "kept_sums", "kept_ties", "tokens")


def sample_tokens(logits: torch.Tensor, settings: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """[N] int32 tokens; -1 where a row holds NaN or +infinity, or leaves no token. A CUDA graph may capture it.

    logits: [N, V] bfloat16, float16 or float32, rows any stride apart. settings: float64, `NUM_SETTINGS` a row, for N
    rows or more: temperature (0: greedy, then the rest has no effect), a uniform number in [0, 1), top_k (0: off),
    top_p (1: off), min_p (0: off). out: where the tokens are wanted. They are those of `engine.draws` and
    `engine.filters`, but where a draw or a border falls within rounding.
    """
    num_rows, vocab_size = logits.shape
    assert logits.stride(1) == 1, f"logits have strides {logits.stride()}"
    assert settings.is_contiguous()
    assert settings.numel() >= num_rows * NUM_SETTINGS, f"{settings.numel()} settings for {num_rows} rows"
    tokens = out if out is not None else torch.empty(num_rows, dtype=torch.int32, device=logits.device)
    assert tokens.shape == (num_rows,)
    assert tokens.dtype == torch.int32
    assert tokens.is_contiguous()
    if num_rows == 0:
        return tokens
    num_blocks, pdl = triton.cdiv(vocab_size, BLOCK), programmatic()
    maxima, sums, kept_sums, kept_ties = torch.empty(4, num_rows, num_blocks, device=logits.device).unbind()
    kept_blocks = torch.empty(num_rows, num_blocks, dtype=torch.int32, device=logits.device)
    sizes = (vocab_size, logits.stride(0), num_blocks)
    constants = {"BLOCK": BLOCK, "NUM_SETTINGS": NUM_SETTINGS, "PDL": pdl, "launch_pdl": pdl}
    _scan_blocks[(triton.cdiv(num_blocks, _SCAN_BLOCKS), num_rows)](
        logits, settings, maxima, sums, *sizes, BLOCKS=_SCAN_BLOCKS, num_warps=_SCAN_WARPS, **constants
    )
    _pick[(num_rows,)](
        logits, settings, maxima, sums, kept_blocks, kept_sums, kept_ties, tokens, *sizes,
        MAX_BLOCKS=triton.next_power_of_2(num_blocks), TILE=_PICK_BYTES // (BLOCK * logits.element_size()),
        SHIFT=16 if logits.dtype == torch.bfloat16 else 0, num_warps=_PICK_WARPS, **constants,
    )  # fmt: skip
    return tokens


@triton.jit
def _scale(temperature):
    """What logits are multiplied with before powers of 2 are taken."""
    return (1.4426950408889634 / tl.where(temperature > 0, temperature, 1.0)).to(tl.float32)


@triton.jit(do_not_specialize_on_alignment=_ANY_ALIGNMENT[:3])
def _scan_blocks(
    logits, settings, maxima, sums, vocab_size, row_stride, num_blocks,
    BLOCKS: tl.constexpr, BLOCK: tl.constexpr, NUM_SETTINGS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    begin_next(PDL)
    row = tl.program_id(1)
    blocks = tl.program_id(0) * BLOCKS + tl.arange(0, BLOCKS)
    there = blocks < num_blocks
    wait_for_last(PDL)
    scale = _scale(tl.load(settings + row * NUM_SETTINGS))
    x = load_blocks(logits + row.to(tl.int64) * row_stride, blocks, there, vocab_size, BLOCK)
    best = tl.max(x, axis=1)
    reference = tl.where(best == float("-inf"), 0.0, best)
    mass = tl.sum(tl.exp2((x - reference[:, None]) * scale), axis=1)  # NaN if any logit is, or +inf
    tl.store(maxima + row * num_blocks + blocks, best, mask=there)
    tl.store(sums + row * num_blocks + blocks, mass, mask=there)


@triton.jit(do_not_specialize_on_alignment=_ANY_ALIGNMENT)
def _pick(
    logits, settings, maxima, sums, kept_blocks, kept_sums, kept_ties, tokens, vocab_size, row_stride, num_blocks,
    BLOCK: tl.constexpr, MAX_BLOCKS: tl.constexpr, TILE: tl.constexpr, NUM_SETTINGS: tl.constexpr,
    SHIFT: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    begin_next(PDL)
    row = tl.program_id(0)
    blocks = tl.arange(0, MAX_BLOCKS)
    row_logits = logits + row.to(tl.int64) * row_stride
    first_block = row * num_blocks
    wait_for_last(PDL)
    temperature = tl.load(settings + row * NUM_SETTINGS)
    uniform = tl.load(settings + row * NUM_SETTINGS + 1)
    top_k = tl.load(settings + row * NUM_SETTINGS + 2)
    top_p = tl.load(settings + row * NUM_SETTINGS + 3)
    min_p = tl.load(settings + row * NUM_SETTINGS + 4)
    there = blocks < num_blocks
    best_of_block = tl.load(maxima + first_block + blocks, mask=there, other=float("-inf"))
    sum_of_block = tl.load(sums + first_block + blocks, mask=there, other=0.0)
    best = tl.max(best_of_block, axis=0)
    is_number = tl.min((sum_of_block == sum_of_block).to(tl.int32), axis=0) > 0
    scale = _scale(temperature)
    if is_number & (tl.abs(best) < float("inf")):
        if temperature > 0:
            masses = sum_of_block * tl.exp2((best_of_block - best) * scale)
            if (top_k > 0) | (top_p < 1) | (min_p > 0):
                token = draw_filtered(
                    row_logits, kept_blocks + first_block, kept_sums + first_block, kept_ties + first_block,
                    best_of_block, masses, best, scale, uniform, top_k, top_p, min_p,
                    vocab_size, num_blocks, BLOCK, TILE, SHIFT,
                )  # fmt: skip
            else:
                token = _draw(row_logits, best_of_block, masses, best, scale, uniform, vocab_size, BLOCK)
        else:
            block = tl.min(tl.where(best_of_block == best, blocks, num_blocks - 1), axis=0)
            ids = block * BLOCK + tl.arange(0, BLOCK)
            x = tl.load(row_logits + ids, mask=ids < vocab_size, other=float("-inf")).to(tl.float32)
            token = tl.min(tl.where(x == best, ids, vocab_size - 1), axis=0)
        tl.store(tokens + row, tl.minimum(token, vocab_size - 1))
    else:
        tl.store(tokens + row, -1)


@triton.jit
def _draw(row_logits, best_of_block, masses, best, scale, uniform, vocab_size, BLOCK: tl.constexpr):
    """The token of a row without filters. In a block, weights are relative to its best: none is lost by underflow."""
    block, target = first_above(masses, uniform * tl.sum(masses.to(tl.float64), axis=0))
    blocks = tl.arange(0, masses.shape[0])
    reference = tl.max(tl.where(blocks == block, best_of_block, float("-inf")), axis=0)
    target = target / tl.exp2((reference - best) * scale).to(tl.float64)
    ids = block * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(row_logits + ids, mask=ids < vocab_size, other=float("-inf")).to(tl.float32)
    return draw_in_block(block, tl.exp2((x - reference) * scale), target, BLOCK)

"""Every operation in plain PyTorch, on any device: the reference that faster kernels are tested against.

Shape letters: B batch, H heads, Q queries, N keys, D head dim, T tokens.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from minisgl.utils.grouped_tensor import GROUP, GroupedTensor

# Queries that `attention_by_matmul` takes at a time: bounds its float32 scores to QUERY_BLOCK * N a head.
QUERY_BLOCK = 256
# In place of a token: the row's hidden state is not finite, so that its KV cannot be trusted.
BROKEN = -2
# What `sample_tokens` of the Triton kernels reads of each row; it has no reference here (see `engine.settings`).
NUM_SETTINGS = 5


def fast_compare_key(x: torch.Tensor, y: torch.Tensor) -> int:
    """How many leading elements two one-dimensional integer tensors share: the index of the first difference."""
    n = min(len(x), len(y))
    differs = (x[:n] != y[:n]).nonzero()
    return int(differs[0, 0]) if len(differs) > 0 else n


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """x / rms(x) * weight over the last dim, computed in float32 and rounded to x's dtype once, at the end.

    x [T, N] or [T, H, N], any strides with a dense last dim; weight [N] of x's dtype or float32.
    Source: arXiv:1910.07467.
    """
    return F.rms_norm(x.to(weight.dtype), weight.shape, weight, eps).to(x.dtype)


def add_rms_norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm(residual + x), where the sum, rounded to the dtype, is left in `residual`.

    x, residual [T, N]. x is given up: the result may lie in its memory.
    """
    return rms_norm(residual.add_(x), weight, eps)


def silu_and_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up for gate_up = [gate | up], [T, 2 * N] -> [T, N]. Source: SwiGLU, arXiv:2002.05202."""
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate).mul_(up)


def gelu_tanh_and_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """The same with GELU by its tanh formula, which Hugging Face calls gelu_pytorch_tanh. Source: arXiv:1606.08415."""
    gate, up = gate_up.chunk(2, dim=-1)
    return F.gelu(gate, approximate="tanh").mul_(up)


def soft_cap(x: torch.Tensor, cap: float) -> None:
    """x [N, V], rows any stride apart, becomes cap * tanh(x / cap) in place. Source: Gemma 2, arXiv:2408.00118."""
    x.copy_(torch.tanh(x.float() / cap).mul_(cap))


def rotary_turns(
    inv_freq: torch.Tensor, positions: torch.Tensor, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin of every position's angles, as `apply_rotary` wants them: [T, 1, D] of `dtype`.

    inv_freq [D/2] float32, radians a position; positions [T] int32 or int64.
    """
    angles = positions.float()[:, None, None] * inv_freq
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((cos, cos), -1).to(dtype), torch.cat((-sin, sin), -1).to(dtype)


def apply_rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, num_heads: int) -> None:
    """Turn the first num_heads heads of every token of x [T, H, D] by the token's angle, in place.

    x: tokens any stride apart. Element i turns with element i + D/2: (a, b) -> (a cos - b sin, b cos + a sin), which is
    x * cos + (b, a) * (-sin, sin); rolling by D/2 swaps a and b. cos, sin: [T, 1, D], the first half of sin negated.
    """
    heads = x[:, :num_heads]
    swapped = heads.roll(x.shape[-1] // 2, dims=-1)
    heads.mul_(cos).addcmul_(swapped, sin)


def grouped_linear(x: torch.Tensor, weight: GroupedTensor, bias: torch.Tensor | None) -> torch.Tensor:
    """x [T, K] times the transpose of weight [N, K], rounded to x's dtype first, plus bias [N]: [T, N]."""
    return F.linear(x, weight.dequantize().to(x.dtype), bias)


def int8_linear(x: torch.Tensor, weight: GroupedTensor, bias: torch.Tensor | None) -> torch.Tensor:
    """x [T, K] in int8 times the transpose of weight [N, K] in its integers, plus bias [N]: [T, N] of x's dtype.

    Every GROUP neighbours of a row of x become q = round(x * 127 / max |x|) and stand for q * max |x| / 127. All
    else is float32.
    """
    groups = x.float().reshape(len(x), -1, GROUP)
    greatest = groups.abs().amax(-1, keepdim=True)
    q = (groups * greatest.new_tensor(127).div(greatest).nan_to_num(posinf=0)).round_()  # 127 / x is 127 * (1 / x)
    seen = (q * (greatest / 127)).flatten(1)
    return F.linear(seen, weight.dequantize(), None if bias is None else bias.float()).to(x.dtype)


def store_cache(
    k_cache: torch.Tensor, v_cache: torch.Tensor, indices: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> None:
    """Write k, v [T, H, D] to slots `indices` [T] of k_cache, v_cache [slots, H, D], in place; -1: nowhere."""
    stored = indices >= 0
    k_cache.index_copy_(0, indices[stored].long(), k[stored])
    v_cache.index_copy_(0, indices[stored].long(), v[stored])


def begin_step(
    page_table: torch.Tensor,
    rows: torch.Tensor,
    cols: torch.Tensor,
    pages: torch.Tensor,
    input_ids: torch.Tensor,
    last: torch.Tensor,
    prev_rows: torch.Tensor,
    prev_tokens: torch.Tensor,
) -> None:
    """Write what changed in the page table, and the input tokens that the host does not know, in place. All int32.

    page_table [R, P] at [rows, cols] = pages, where rows [U] is not -1. input_ids [T] at last [B] = prev_tokens at
    prev_rows [B], where that is not -1. A request that has failed left a token below 0; any token will do for it.
    """
    changed = rows >= 0
    page_table[rows[changed], cols[: len(rows)][changed]] = pages[: len(rows)][changed]
    awaited = prev_rows >= 0
    input_ids[last[awaited]] = prev_tokens[prev_rows[awaited]].clamp_min(0)


def fill_kv_indices(
    page_table: torch.Tensor, rows: torch.Tensor, first_pages: torch.Tensor, indptr: torch.Tensor, out: torch.Tensor
) -> None:
    """List the pages of runs of the page table: out[indptr[i] : indptr[i + 1]] are those of row rows[i], in place.

    page_table [R, P], rows [N], first_pages [N]: the column where a run begins, indptr [N + 1], out: all int32. A run
    of row -1 is of page 0, again and again.
    """
    runs = torch.arange(len(rows), device=rows.device).repeat_interleave(indptr.diff())
    columns = torch.arange(len(runs), device=rows.device) + (first_pages - indptr[:-1] + indptr[0])[runs]
    is_real = rows[runs] >= 0
    pages = page_table[rows[runs].clamp(min=0), columns.where(is_real, 0)]
    out[indptr[0] : indptr[-1]] = pages.where(is_real, 0)


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    scale: float,
    softcap: float = 0.0,
    causal: bool = False,
    mask: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Softmax attention with its log-sum-exp, so that `merge_states` can join it with attention to other keys.

    q [B, H, Q, D]; k, v [B, H, N, D], any strides with a dense last dim. A score is s = scale * q . k, or
    softcap * tanh(s / softcap) if softcap is not 0. causal: query i sees keys 0 .. i (Q == N). mask: float32,
    broadcastable to [B, 1, Q, N], added to the scores.
    Returns o [B, H, Q, D] of q's dtype and lse [B, H, Q] float32. Every query must see a key.
    """
    if q.device.type == "cpu" and not softcap:
        return _attention_by_flash_on_cpu(q, k, v, scale, causal, mask)
    return attention_by_matmul(q, k, v, scale=scale, softcap=softcap, causal=causal, mask=mask)


def _attention_by_flash_on_cpu(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, causal: bool, mask: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The operator under scaled_dot_product_attention on a CPU, which alone gives the log-sum-exp away.

    Two to ten times as fast as matmuls with a softmax between them (docs/lab-notes.md).
    """
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    out, lse = flash(q, k, v, 0.0, causal, attn_mask=mask, scale=scale)
    return out, lse


def attention_by_matmul(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    scale: float,
    softcap: float = 0.0,
    causal: bool = False,
    mask: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same as `attention`, spelt out; softmax in float32, `QUERY_BLOCK` queries at a time."""
    outs, lses = [], []
    for start in range(0, q.shape[2], QUERY_BLOCK):
        block = q[:, :, start : start + QUERY_BLOCK]
        num_keys = start + block.shape[2] if causal else k.shape[2]
        scores = _scores(block, k[:, :, :num_keys], scale, softcap)
        if causal:
            later = torch.ones(scores.shape[2:], dtype=torch.bool, device=q.device).triu_(start + 1)
            scores = scores.masked_fill_(later, float("-inf"))
        if mask is not None:
            scores = scores.add_(mask if mask.shape[2] == 1 else mask[:, :, start : start + QUERY_BLOCK])
        greatest = scores.amax(dim=-1, keepdim=True)
        weights = scores.sub_(greatest).exp_()
        total = weights.sum(dim=-1, keepdim=True)
        outs.append(torch.matmul(weights.to(v.dtype), v[:, :, :num_keys]).div_(total))
        lses.append((greatest + total.log())[..., 0])
    return torch.cat(outs, dim=2), torch.cat(lses, dim=2)


def _scores(q: torch.Tensor, k: torch.Tensor, scale: float, softcap: float) -> torch.Tensor:
    products = torch.matmul(q, k.transpose(2, 3)).float()
    return products.mul_(scale / softcap).tanh_().mul_(softcap) if softcap else products.mul_(scale)


def add_sinks(o: torch.Tensor, lse: torch.Tensor, sinks: torch.Tensor) -> None:
    """Give each head's softmax one more score, which has no value: o [..., H, D] becomes less, in place.

    lse [..., H] float32: of the scores so far; sinks [H]. With p = exp(lse), o *= p / (p + exp(sink)).
    """
    o.copy_(o.float() * torch.sigmoid(lse - sinks.float())[..., None])


def merge_states(
    o1: torch.Tensor, lse1: torch.Tensor, o2: torch.Tensor, lse2: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention to the union of two disjoint sets of keys, from attention to each of them.

    o1, o2 [..., D] float32, lse1, lse2 [...] float32, at most one of the two -inf; the results are shaped alike.
    With p = exp(lse), (p1 o1 + p2 o2) / (p1 + p2) = lerp(o1, o2, sigmoid(lse2 - lse1)), which cannot overflow.
    Source: FlashInfer, arXiv:2501.01005 sec. 2.2.
    """
    share = torch.sigmoid(lse2 - lse1)
    return torch.lerp(o1, o2, share[..., None]), torch.logaddexp(lse1, lse2)


def look_up(
    scale: torch.Tensor, offset: torch.Tensor, codes: torch.Tensor, ids: torch.Tensor, dtype: torch.dtype
) -> torch.Tensor:
    """Rows ids [T] of scale * code + offset, rounded once: [T, K] of `dtype`.

    codes [V, K] uint8; scale, offset [V, K / n] float32: each for n codes in a row. ids int32 or int64.
    """
    scale, offset, codes = (x.index_select(0, ids) for x in (scale, offset, codes))
    values = codes.view(*scale.shape, codes.shape[1] // scale.shape[1]).float()
    return torch.addcmul(offset[..., None], values, scale[..., None]).view(codes.shape).to(dtype)


def best_tokens(logits: torch.Tensor) -> torch.Tensor:
    """The greatest of each row's logits [N, V], of equal ones the first: [N] int32, -1 if it is not finite."""
    best, tokens = logits.max(dim=-1)  # NaN is greater than any number
    return tokens.where(best.isfinite(), -1).int()


def mark_broken(hidden: torch.Tensor, tokens: torch.Tensor) -> None:
    """Write BROKEN to tokens [B] int32 where the row of hidden [B, H] is not finite, in place."""
    tokens.masked_fill_(~hidden.isfinite().all(dim=-1), BROKEN)

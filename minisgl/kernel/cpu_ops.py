"""What layers do, as in torch_ops, in C++ (csrc/) for float32 and bfloat16 on a CPU: same arguments, same results.

Results have no history for autograd, which takes no note of changes in place either. Tensors are contiguous but where
torch_ops allows strides. There are as few calls into torch as can be: after a matmul has swept the caches, each takes
some 10 us.
"""

from __future__ import annotations

import torch

from minisgl.kernel.cpu_library import DTYPES, Function, functions, has_dense_rows, is_dense


def can_take(x: torch.Tensor) -> bool:
    """Whether this module can work on tensors like `x`. The first call may build the library."""
    return x.is_cpu and x.dtype in DTYPES and bool(functions())


def has(name: str, x: torch.Tensor) -> bool:
    """Whether this module has the operation of that name for a first tensor like `x`."""
    return x.is_cpu and (name, x.dtype) in functions()


def in_use() -> bool:
    """Whether there is a library, and MINISGL_KERNELS allows it. The first call may build it."""
    return bool(functions())


def seconds_taken() -> float:
    """What linear layers, attention and `rotate_and_store` have taken in this process; 0 without a library."""
    found = functions()
    return found["nanoseconds_taken", torch.uint8]() / 1e9 if found else 0.0


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    assert x.stride(-1) == 1 or x.shape[-1] == 1 or x.numel() == 0, x.stride()
    assert x.dim() in (2, 3), x.shape
    out = torch.empty(x.shape, dtype=x.dtype)
    heads, head_stride = (x.shape[1], x.stride(1)) if x.dim() == 3 else (1, 0)
    _of_weight("rms_norm", x, weight)(
        *(x.data_ptr(), x.shape[0], heads, x.shape[-1], x.stride(0), head_stride),
        *(weight.data_ptr(), eps, out.data_ptr(), torch.get_num_threads()),
    )
    return out


def add_rms_norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    tokens, size = x.shape
    assert x.is_contiguous(), x.stride()
    assert is_dense(residual, x.shape, x.dtype), (x.shape, x.dtype, residual.shape, residual.dtype)
    _of_weight("add_rms_norm", x, weight)(
        *(x.data_ptr(), residual.data_ptr(), tokens, size, weight.data_ptr(), eps, torch.get_num_threads())
    )
    return x


def _of_weight(name: str, x: torch.Tensor, weight: torch.Tensor) -> Function:
    """The function of that name for a weight of x's dtype, or of float32."""
    assert weight.dtype in (x.dtype, torch.float32), (x.dtype, weight.dtype)
    assert is_dense(weight, x.shape[-1:], weight.dtype), (x.shape, weight.shape, weight.stride())
    return functions()[name if weight.dtype == x.dtype else f"{name}_wide", x.dtype]


def silu_and_mul(gate_up: torch.Tensor) -> torch.Tensor:
    return _activate_and_mul("silu_and_mul", gate_up)


def gelu_tanh_and_mul(gate_up: torch.Tensor) -> torch.Tensor:
    return _activate_and_mul("gelu_tanh_and_mul", gate_up)


def _activate_and_mul(name: str, gate_up: torch.Tensor) -> torch.Tensor:
    assert gate_up.is_contiguous(), gate_up.stride()
    tokens, size = gate_up.shape
    assert size % 2 == 0, gate_up.shape
    out = torch.empty(tokens, size // 2, dtype=gate_up.dtype)
    functions()[name, gate_up.dtype](*(gate_up.data_ptr(), tokens, size // 2, out.data_ptr(), torch.get_num_threads()))
    return out


def apply_rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, num_heads: int) -> None:
    tokens, heads, dim = x.shape
    assert has_dense_rows(x), x.stride()
    assert num_heads <= heads, (num_heads, x.shape)
    assert is_dense(cos, (tokens, 1, dim), x.dtype), (x.shape, x.dtype, cos.shape, cos.dtype)
    assert is_dense(sin, (tokens, 1, dim), x.dtype), (x.shape, x.dtype, sin.shape, sin.dtype)
    functions()["apply_rotary", x.dtype](
        *(x.data_ptr(), tokens, num_heads, dim, x.stride(0), cos.data_ptr(), sin.data_ptr(), torch.get_num_threads())
    )


def rotate_and_store(
    qkv: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    num_qo_heads: int,
    num_kv_heads: int,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    out_loc: torch.Tensor,
    q_weight: torch.Tensor | None = None,
    k_weight: torch.Tensor | None = None,
    eps: float = 0.0,
) -> None:
    """As of `rotation`, with its arguments."""
    tokens, heads, dim = qkv.shape
    dtype = qkv.dtype
    assert heads == num_qo_heads + 2 * num_kv_heads, (qkv.shape, num_qo_heads, num_kv_heads)
    for x, shape in ((qkv, qkv.shape), (cos, (tokens, 1, dim)), (sin, (tokens, 1, dim))):
        assert is_dense(x, shape, dtype), (x.shape, x.dtype, qkv.shape, dtype)
    for pool in (k_cache, v_cache):
        assert is_dense(pool, (len(k_cache), num_kv_heads, dim), dtype), (qkv.shape, dtype, pool.shape, pool.dtype)
    assert is_dense(out_loc, (tokens,), torch.int32), (out_loc.shape, out_loc.dtype, qkv.shape)
    weights: tuple[int | None, int | None] = None, None
    wide = False
    if q_weight is not None and k_weight is not None:
        wide = q_weight.dtype != dtype
        for weight in (q_weight, k_weight):
            assert is_dense(weight, (dim,), torch.float32 if wide else dtype), (weight.shape, weight.dtype, dim, dtype)
        weights = q_weight.data_ptr(), k_weight.data_ptr()
    functions()["rotate_and_store", dtype](
        *(qkv.data_ptr(), tokens, num_qo_heads, num_kv_heads, dim, cos.data_ptr(), sin.data_ptr()),
        *(k_cache.data_ptr(), v_cache.data_ptr(), out_loc.data_ptr(), *weights, wide, eps, torch.get_num_threads()),
    )


def store_cache(
    k_cache: torch.Tensor, v_cache: torch.Tensor, indices: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> None:
    tokens, heads, dim = k.shape
    assert has_dense_rows(k), k.stride()
    assert has_dense_rows(v), v.stride()
    assert v.shape == k.shape, (k.shape, v.shape)
    assert v.dtype == k.dtype, (k.dtype, v.dtype)
    for pool in (k_cache, v_cache):
        assert is_dense(pool, (len(k_cache), heads, dim), k.dtype), (k.shape, k.dtype, pool.shape, pool.dtype)
    indices = indices.int().contiguous()
    assert indices.shape == (tokens,), (indices.shape, k.shape)
    functions()["store_cache", k.dtype](
        *(k_cache.data_ptr(), v_cache.data_ptr(), indices.data_ptr(), tokens, heads * dim),
        *(k.data_ptr(), v.data_ptr(), k.stride(0), v.stride(0), torch.get_num_threads()),
    )

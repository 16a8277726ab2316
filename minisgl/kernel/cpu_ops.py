"""The operations of torch_ops in C++ (csrc/), for float32 and bfloat16 on a CPU: the same names, arguments and results.

Results have no history for autograd, which takes no note of changes in place either. Tensors are contiguous but where
torch_ops allows strides. There are as few calls into torch as can be: after a matmul has swept the caches, each takes
some 10 us.

Calls keep the interpreter lock. Letting go of it for a few microseconds, some 200 times a step, made a step ten times
as long while another thread was busy: Python hands the lock back only every 5 ms.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from functools import cache

import torch

from minisgl.env import ENV
from minisgl.kernel.cpu_build import BuildError, build
from minisgl.utils.hardware import find_compiler
from minisgl.utils.logging import get_logger

logger = get_logger(__name__)

DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}

# Arguments of the C functions: p pointer, n int64, f float, t number of threads. There is one for each dtype.
_SIGNATURES = {
    "rms_norm": "pnnnnnpfpt",
    "add_rms_norm": "ppnnpft",
    "silu_and_mul": "pnnpt",
    "apply_rotary": "pnnnnppt",
    "store_cache": "pppnnppnnt",
    "decode_attention": "pnppppnnnnppt",
    "grouped_linear": "pnnnpnppt",
}
_CTYPES = {"p": ctypes.c_void_p, "n": ctypes.c_int64, "f": ctypes.c_float, "t": ctypes.c_int}

Functions = Mapping[tuple[str, torch.dtype], Callable[..., None]]


def can_take(x: torch.Tensor) -> bool:
    """Whether this module can work on tensors like `x`. The first call may build the library."""
    return x.is_cpu and x.dtype in DTYPES and bool(functions())


def in_use() -> bool:
    """Whether there is a library, and MINISGL_KERNELS allows it. The first call may build it."""
    return bool(functions())


@cache
def functions() -> Functions:
    """By name and dtype; empty without a library, for which the log has the reason."""
    if ENV.KERNELS.value == "torch":
        return {}
    compiler = find_compiler()
    if compiler is None:
        logger.info("no C++ compiler was found; the slower kernels of torch are used")
        return {}
    try:
        library = ctypes.PyDLL(str(build(compiler, ENV.CACHE_DIR.value)))
    except (BuildError, OSError) as error:
        logger.warning("the C++ kernels could not be built; the slower ones of torch are used: %s", error)
        return {}
    found = {
        (name, dtype): _declare(library, f"{name}_{suffix}", letters)
        for name, letters in _SIGNATURES.items()
        for dtype, suffix in DTYPES.items()
    }
    return found | {("pack_groups", torch.uint8): _declare(library, "pack_groups", "pppnnnp")}


def _declare(library: ctypes.CDLL, name: str, letters: str) -> Callable[..., None]:
    function = getattr(library, name)
    function.argtypes, function.restype = [_CTYPES[letter] for letter in letters], None
    return function  # type: ignore[no-any-return]


def _has_dense_rows(x: torch.Tensor) -> bool:
    """Whether x[i] of x [T, H, D] is one run of memory for every i."""
    return x.stride(2) == 1 and (x.stride(1) == x.shape[2] or x.shape[1] == 1)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    assert x.stride(-1) == 1, x.stride()
    assert x.dtype == weight.dtype, (x.dtype, weight.dtype)
    out = torch.empty(x.shape, dtype=x.dtype)
    heads, head_stride = (x.shape[1], x.stride(1)) if x.dim() == 3 else (1, 0)
    functions()["rms_norm", x.dtype](
        *(x.data_ptr(), x.shape[0], heads, x.shape[-1], x.stride(0), head_stride),
        *(weight.data_ptr(), eps, out.data_ptr(), torch.get_num_threads()),
    )
    return out


def add_rms_norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    tokens, size = x.shape
    assert x.is_contiguous(), x.stride()
    assert residual.is_contiguous(), residual.stride()
    assert x.dtype == residual.dtype == weight.dtype, (x.dtype, residual.dtype, weight.dtype)
    functions()["add_rms_norm", x.dtype](
        *(x.data_ptr(), residual.data_ptr(), tokens, size, weight.data_ptr(), eps, torch.get_num_threads())
    )
    return x


def silu_and_mul(gate_up: torch.Tensor) -> torch.Tensor:
    assert gate_up.is_contiguous(), gate_up.stride()
    tokens, size = gate_up.shape
    out = torch.empty(tokens, size // 2, dtype=gate_up.dtype)
    functions()["silu_and_mul", gate_up.dtype](
        *(gate_up.data_ptr(), tokens, size // 2, out.data_ptr(), torch.get_num_threads())
    )
    return out


def apply_rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, num_heads: int) -> None:
    tokens, _, dim = x.shape
    assert _has_dense_rows(x), x.stride()
    assert cos.is_contiguous(), cos.stride()
    assert sin.is_contiguous(), sin.stride()
    assert x.dtype == cos.dtype == sin.dtype, (x.dtype, cos.dtype, sin.dtype)
    functions()["apply_rotary", x.dtype](
        *(x.data_ptr(), tokens, num_heads, dim, x.stride(0), cos.data_ptr(), sin.data_ptr(), torch.get_num_threads())
    )


def store_cache(
    k_cache: torch.Tensor, v_cache: torch.Tensor, indices: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> None:
    tokens, heads, dim = k.shape
    assert _has_dense_rows(k), k.stride()
    assert _has_dense_rows(v), v.stride()
    assert k.dtype == v.dtype == k_cache.dtype, (k.dtype, v.dtype, k_cache.dtype)
    indices = indices if indices.dtype == torch.int64 else indices.long()
    functions()["store_cache", k.dtype](
        *(k_cache.data_ptr(), v_cache.data_ptr(), indices.data_ptr(), tokens, heads * dim),
        *(k.data_ptr(), v.data_ptr(), k.stride(0), v.stride(0), torch.get_num_threads()),
    )


def decode_attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slots: torch.Tensor,
    indptr: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
) -> None:
    rows, num_qo_heads, dim = q.shape
    assert _has_dense_rows(q), q.stride()
    assert q.dtype == k_cache.dtype == o.dtype, (q.dtype, k_cache.dtype, o.dtype)
    assert slots.dtype == indptr.dtype == torch.int32, (slots.dtype, indptr.dtype)
    assert o.numel() == lse.numel() * dim == rows * num_qo_heads * dim, (q.shape, o.shape, lse.shape)
    functions()["decode_attention", q.dtype](
        *(q.data_ptr(), q.stride(0), k_cache.data_ptr(), v_cache.data_ptr(), slots.data_ptr(), indptr.data_ptr()),
        *(rows, num_qo_heads, k_cache.shape[1], dim, o.data_ptr(), lse.data_ptr(), torch.get_num_threads()),
    )

"""The C++ library (csrc/): built or found, loaded, and its functions with the types of their arguments.

Calls keep the interpreter lock. Letting go of it for a few microseconds, some 200 times a step, made a step ten times
as long while another thread was busy: Python hands the lock back only every 5 ms.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar

import torch

from minisgl.env import ENV
from minisgl.kernel.cpu_choice import Choice, choose
from minisgl.kernel.cpu_levels import BuildError
from minisgl.utils.logging import get_logger

logger = get_logger(__name__)

DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}

# Arguments of the C functions: p pointer, n int64, f float, t number of threads. There is one for each dtype.
_OF_A_FORWARD_PASS = {
    "rms_norm": "pnnnnnpfpt",
    "add_rms_norm": "ppnnpft",
    "rms_norm_wide": "pnnnnnpfpt",  # weights in float32
    "add_rms_norm_wide": "ppnnpft",
    "norm_linear": "ppppnfnpt>t",
    "rotate_and_store": "pnnnnpppppppnft",
    "silu_and_mul": "pnnpt",
    "gelu_tanh_and_mul": "pnnpt",
    "apply_rotary": "pnnnnppt",
    "store_cache": "pppnnppnnt",
    "look_up": "ppppnnnpt",
    "rotary_turns": "pnpnppt",
    "attention": "ppnppppt>t",
    "linear": "ppnpt>t",
}
_BESIDE_IT = {
    "mark_broken": "pnnnpn",
    "best_tokens": "pnnnpt",
    "pack_floats": "pnnnnnpt",
}
_OF_CODES = {  # uint8
    "packed_bytes": "nnn>n",
    "pack_groups": "pppnnnpt",
    "strip_bytes": "nnnn>n",
    "pack_strips": "pppnnnnpt",
    "quantise": "pnnnnnpppt",
    "nanoseconds_taken": ">n",  # on nothing
    "call_recorded": "pn>n",  # on anything
}
_OF_INT32 = {"begin_step": "pnpppnppppn"}
_CTYPES = {"p": ctypes.c_void_p, "n": ctypes.c_int64, "f": ctypes.c_float, "t": ctypes.c_int}


class Function:
    """A C function. letters: of its arguments, and after a ">" that of its result.

    listener: is told of every call that can be made again, after it, with what `again` and `words` want.
    """

    listener: ClassVar[Callable[[Function, tuple[Any, ...]], None] | None] = None

    def __init__(self, library: ctypes.CDLL, name: str, letters: str) -> None:
        self.name = name
        self._letters, _, result = letters.partition(">")
        self._call = getattr(library, name)
        self._call.argtypes = [_CTYPES[letter] for letter in self._letters]
        self._call.restype = _CTYPES.get(result)
        self.again: int | None = None  # address of what calls it with `words`

    def __call__(self, *args: Any) -> Any:
        result = self._call(*args)
        listener = Function.listener  # read once: another thread may take it away meanwhile
        if listener is not None:
            listener(self, args)
        return result

    def words(self, args: tuple[Any, ...]) -> list[int]:
        """The arguments of a call as the library keeps them, each in 64 bits: see csrc/recorded.h."""
        return [
            int.from_bytes(struct.pack("f4x", value), sys.byteorder, signed=True) if letter == "f" else value or 0
            for letter, value in zip(self._letters, args, strict=True)
        ]


Functions = Mapping[tuple[str, torch.dtype], Function]


@cache
def functions() -> Functions:
    """By name and dtype; empty without a library, for which the log has the reason.

    ValueError if the processor lacks what MINISGL_CPU_ISA says.
    """
    if ENV.KERNELS.value == "torch":
        return {}
    try:
        chosen = _chosen(ENV.CACHE_DIR.value, ENV.CPU_ISA.value)
        if chosen is None:
            logger.info("the package has no library for this processor, and there is no C++ compiler: torch computes")
            return {}
        logger.info("C++ kernels: %s", chosen)
        library = ctypes.PyDLL(str(chosen.library.path))
    except (BuildError, OSError) as error:
        logger.warning("the C++ kernels could not be built; the slower ones of torch are used: %s", error)
        return {}
    found: dict[tuple[str, torch.dtype], Function] = {}
    for dtype, suffix in DTYPES.items():
        for name, letters in (_OF_A_FORWARD_PASS | _BESIDE_IT).items():
            found[name, dtype] = Function(library, f"{name}_{suffix}", letters)
        for name in _OF_A_FORWARD_PASS:
            again = getattr(library, f"recorded_{name}_{suffix}")
            found[name, dtype].again = ctypes.cast(again, ctypes.c_void_p).value
    for dtype, signatures in ((torch.uint8, _OF_CODES), (torch.int32, _OF_INT32)):
        found |= {(name, dtype): Function(library, name, letters) for name, letters in signatures.items()}
    return found


def choice() -> Choice | None:
    """Library and dtype chosen to compute with, and the reason; None without a library."""
    return _chosen(ENV.CACHE_DIR.value, ENV.CPU_ISA.value) if functions() else None


_chosen = cache(choose)  # to find a library may take a run of the compiler


def is_dense(x: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> bool:
    """Whether x is what a kernel takes it for; it would read and write past the end of anything else."""
    return x.shape == shape and x.dtype == dtype and x.is_contiguous()


def has_dense_rows(x: torch.Tensor) -> bool:
    """Whether x[i] of x [T, H, D] is one run of memory for every i."""
    _, heads, dim = x.shape
    return ((x.stride(2) == 1 or dim == 1) and (x.stride(1) == dim or heads == 1)) or x.numel() == 0

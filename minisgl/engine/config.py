"""What the engine is built from: the model, where it runs, and how much memory it may take. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from minisgl.utils.options import check_choices, check_minimum, option

COMPUTE_DTYPES = ("float32", "bfloat16")  # a checkpoint in float16 is converted


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """As the user wrote it; `spec.resolve` turns "auto" and None into values. A wrong value is a ValueError here.

    dtype: kept by its name; torch's own will do.
    """

    model: str = option("smollm2", "an alias (see `minisgl pull`), a local folder, a GGUF file or a Hugging Face id")
    device: str = option("auto", "auto takes a GPU if there is one", choices=("auto", "cpu", "cuda"))
    dtype: Any = option("auto", "of weights, activations and KV", choices=("auto", *COMPUTE_DTYPES))
    load_format: str = option("auto", "dummy makes random weights of the configured shape", choices=("auto", "dummy"))
    quantization: str = option(
        "auto",
        "integers for linear layers on a CPU: gguf those of the file, int8 and int4 made of any weights; "
        "auto takes gguf for a GGUF file in bfloat16, else none",
        choices=("auto", "none", "int8", "int4", "gguf"),
    )
    deterministic: bool | None = option(
        None,
        "a token's logits are the same to the bit beside any other requests, however its prompt is cut or cached: "
        "the default on a CPU with C++ kernels, refused elsewhere; no: oneDNN or MKL multiply floats",
    )
    attention_backend: str = option(
        "auto",
        "which attention implementation: torch anywhere; cpu, in C++; on GPUs triton and flashinfer (its own package)",
        choices=("auto", "torch", "cpu", "triton", "flashinfer"),
    )
    shared_prefix: str = option(
        "auto",
        "attention reads a prefix that several running requests share once, where that pays",
        choices=("auto", "off"),
    )
    page_size: int = option(1, "tokens a page of the KV pool holds; whole pages are cached", minimum=1)
    num_page_override: int | None = option(
        None, "pages in the KV pool (default: from the memory ratio)", flag="num-pages", minimum=1
    )
    memory_ratio: float | None = option(
        None, "share of the memory free after loading that the KV pool may take (default: 0.5 on a CPU, 0.9 on a GPU)"
    )
    max_running_req: int | None = option(
        None, "requests that run at the same time (default: 256 on GPUs, 64 on CPUs)", flag="max-running", minimum=1
    )
    max_seq_len_override: int | None = option(
        None, "context length in tokens (default: the model's)", flag="max-seq-len", minimum=1
    )
    cuda_graph_max_bs: int | None = option(
        None,
        "largest decode batch captured as a CUDA graph; 0: none (default: all of --max-running, at most 256)",
        minimum=0,
    )
    tensor_parallel_size: int = option(1, "GPUs that share the model, or processes that do on a CPU", minimum=1)

    def __post_init__(self) -> None:
        if str(self.dtype).startswith("torch."):
            object.__setattr__(self, "dtype", str(self.dtype).removeprefix("torch."))
        check_choices(self)
        check_minimum(self)
        ratio = self.memory_ratio
        if ratio is not None and (not isinstance(ratio, int | float) or not 0 < ratio <= 1):
            raise ValueError(f"memory_ratio={ratio!r} is not a number in (0, 1]")

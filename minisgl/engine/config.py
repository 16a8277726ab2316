"""What the engine is built from: the model, where it runs, and how much memory it may take."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from minisgl.utils.options import option


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """"auto" and None are turned into values, once, by `resolve`."""

    model: str = option("smollm2", "an alias (see `minisgl pull`), a local folder, a .gguf file or a Hugging Face id")
    device: str = option("auto", "auto takes a GPU if there is one", choices=("auto", "cpu", "cuda"))
    dtype: str | torch.dtype = option(
        "auto", "of weights, activations and KV", choices=("auto", "float32", "bfloat16")
    )
    load_format: str = option(
        "auto", "dummy makes random weights of the configured shape", choices=("auto", "dummy")
    )
    attention_backend: str = option("auto", "which attention implementation", choices=("auto", "torch"))
    page_size: int = option(1, "tokens a page of the KV pool holds; whole pages are cached")
    num_page_override: int | None = option(None, "pages in the KV pool (default: from the memory ratio)", flag="num-pages")
    memory_ratio: float = option(0.5, "share of the free memory, after loading, that the KV pool may take")
    max_running_req: int = option(64, "requests that run at the same time")
    max_seq_len_override: int | None = option(None, "context length (default: the model's)", flag="max-seq-len")
    cuda_graph_max_bs: int | None = option(None, "largest decode batch captured as a CUDA graph (no effect on a CPU)")
    tensor_parallel_size: int = option(1, "GPUs that share the model")

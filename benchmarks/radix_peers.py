"""Which peers of the radix cache can be measured here; docs/benchmarks-radix.md says how to install them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from radix_caches import PrefixCache

VLLM_LEAST_PAGE = 16

Kinds = list[type[PrefixCache]]


class Peers:
    """The caches of those packages that are installed; a line for each that is not.

    cpp_tree: SGLang's folder srt/mem_cache/cpp_radix_tree, to be compiled (a minute, the first time); None: without it.
    """

    def __init__(self, cpp_tree: Path | None) -> None:
        self._trees: Kinds = []
        self._blocks: Kinds = []
        try:
            sglang = import_module("radix_sglang")
            self._trees += [sglang.SglangRust, sglang.SglangClassic]
            if cpp_tree is not None:
                self._trees.append(sglang.load_cpp_tree(cpp_tree))
        except ImportError as error:
            print(f"SGLang is not measured: {error}")
        try:
            vllm = import_module("radix_vllm")
            self._blocks += [vllm.VllmSha256, vllm.VllmXxhash]
        except ImportError as error:
            print(f"vLLM is not measured: {error}")

    def at(self, page_size: int) -> Kinds:
        """Those that can have this page size."""
        return [*self._trees, *self._blocks] if page_size >= VLLM_LEAST_PAGE else self._trees

"""The logits that an engine computes, of every position of a prompt."""

from __future__ import annotations

import torch

from minisgl import LLM, SamplingParams


def watch_logits(llm: LLM, ids: list[int]) -> torch.Tensor:
    """[len(ids), V], of `ids` as one prompt, in the chunks of this engine; its cache is empty before and afterwards."""
    seen: list[torch.Tensor] = []
    model = llm._parts.engine.model
    compute = model.compute_logits

    def watched(hidden: torch.Tensor) -> torch.Tensor:
        seen.append(compute(hidden).clone())
        return seen[-1]

    llm.purge_cache()
    model.compute_logits = watched  # type: ignore[method-assign]
    try:
        llm.generate(ids, SamplingParams(max_tokens=1, prompt_logprobs=0))
    finally:
        model.compute_logits = compute  # type: ignore[method-assign]
    llm.purge_cache()
    return torch.cat(seen)

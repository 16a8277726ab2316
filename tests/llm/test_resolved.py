from __future__ import annotations

from pathlib import Path

import huggingface_hub
import pytest
import torch

from minisgl import LLM, SamplingParams


def test_spec_says_what_auto_became(llm: LLM):
    assert llm.spec.max_seq_len == 512
    assert llm.spec.dtype == torch.float32
    assert llm.spec.device.type in ("cpu", "cuda")


def test_random_weights_of_a_hub_id_need_no_weights_from_the_hub(tiny: Path, monkeypatch: pytest.MonkeyPatch):
    def snapshot_download(repo_id: str, allow_patterns: list[str], ignore_patterns: list[str]) -> str:
        assert "*.safetensors" not in allow_patterns
        return str(tiny)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    with LLM("org/model", load_format="dummy", num_page_override=64) as llm:
        output = llm.generate("hi", SamplingParams(max_tokens=2, ignore_eos=True))[0]
    assert len(output["token_ids"]) == 2

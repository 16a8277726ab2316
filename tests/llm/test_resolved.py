from __future__ import annotations

from pathlib import Path

import huggingface_hub
import pytest
import torch

from minisgl import LLM, SamplingParams
from minisgl.llm.config import resolve_max_extend_tokens
from minisgl.scheduler.config import SchedulerConfig


def test_spec_says_what_auto_became(llm: LLM):
    assert llm.spec.max_seq_len == 512
    assert llm.spec.dtype == torch.float32
    assert llm.spec.device.type in ("cpu", "cuda")


@pytest.mark.parametrize(
    ("given", "device_type", "resolved"),
    [(None, "cpu", 512), (None, "cuda", 2048), (2048, "cpu", 2048), (7, "cuda", 7)],
)
def test_a_cpu_computes_fewer_prompt_tokens_in_one_batch_unless_told(
    given: int | None, device_type: str, resolved: int
) -> None:
    assert resolve_max_extend_tokens(SchedulerConfig(max_extend_tokens=given), device_type) == resolved


def test_random_weights_of_a_hub_id_need_no_weights_from_the_hub(tiny: Path, monkeypatch: pytest.MonkeyPatch):
    def snapshot_download(repo_id: str, allow_patterns: list[str], ignore_patterns: list[str]) -> str:
        assert "*.safetensors" not in allow_patterns
        return str(tiny)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    with LLM("org/model", load_format="dummy", num_page_override=64) as llm:
        output = llm.generate("hi", SamplingParams(max_tokens=2, ignore_eos=True))[0]
    assert len(output["token_ids"]) == 2

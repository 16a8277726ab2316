from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import huggingface_hub
import pytest
import torch
from support.dense_attention import read_json

from minisgl import LLM, SamplingParams
from minisgl.engine import spec
from minisgl.engine.config import EngineConfig
from minisgl.engine.spec import resolve
from minisgl.models import ModelConfig
from minisgl.utils.hardware import Gpu, find_hardware


def test_spec_says_what_auto_became(llm: LLM):
    assert llm.spec.max_seq_len == 512
    assert llm.spec.dtype == torch.float32
    assert llm.spec.device.type in ("cpu", "cuda")


@pytest.mark.parametrize(
    ("given", "device_type", "resolved"),
    [(None, "cpu", 512), (None, "cuda", 2048), (2048, "cpu", 2048), (7, "cuda", 7)],
)
def test_a_cpu_computes_fewer_prompt_tokens_in_one_batch_unless_told(
    monkeypatch: pytest.MonkeyPatch, given: int | None, device_type: str, resolved: int
) -> None:
    hardware = replace(find_hardware(), gpus=(Gpu("a GPU", 1 << 30, (9, 0)),) if device_type == "cuda" else ())
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    model = ModelConfig.from_hf(read_json("llama_biases", "config.json"))
    spec = resolve(EngineConfig(device=device_type), model, hardware, given)
    assert spec.max_extend_tokens == resolved


def test_a_missing_package_is_named_before_anything_is_loaded(monkeypatch: pytest.MonkeyPatch):
    hardware = replace(find_hardware(), gpus=(Gpu("a GPU", 1 << 30, (9, 0)),))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setitem(sys.modules, "flashinfer", None)
    model = ModelConfig.from_hf(read_json("llama_biases", "config.json"))
    with pytest.raises(ValueError, match="attention_backend='flashinfer' needs the package flashinfer-python"):
        resolve(EngineConfig(attention_backend="flashinfer"), model, hardware)


def test_a_cpu_attends_in_cpp_where_it_can(monkeypatch: pytest.MonkeyPatch):
    for has_kernels, backend in ((True, "cpu"), (False, "torch")):
        monkeypatch.setattr(spec.cpu_ops, "in_use", lambda found=has_kernels: found)
        assert spec.resolve_backend("auto", on_gpu=False) == backend
    with pytest.raises(ValueError, match=r"attention_backend='cpu' needs the C\+\+ kernels"):
        spec.resolve_backend("cpu", on_gpu=False)
    with pytest.raises(ValueError, match="attention_backend='cpu' runs on CPUs only"):
        spec.resolve_backend("cpu", on_gpu=True)


def test_what_flashinfer_has_no_kernels_for_is_refused_before_anything_is_loaded(monkeypatch: pytest.MonkeyPatch):
    hardware = replace(find_hardware(), gpus=(Gpu("a GPU", 1 << 30, (9, 0)),))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(spec.flashinfer_calls, "check_installed", lambda: None)
    model = ModelConfig.from_hf(read_json("llama_biases", "config.json"))
    windowed = replace(model, head_dim=64, windows=(0, 128))
    capped = replace(model, head_dim=64, attn_softcap=50.0)
    with_sinks = replace(model, head_dim=64, attn_sinks=True)
    for refused, dtype, words in (
        (model, "float32", "takes bfloat16"),
        (model, "bfloat16", "takes head_dim 64, 128 and 256, not 16"),
        (windowed, "bfloat16", "serves no model with sliding windows, here of 128 tokens"),
        (capped, "bfloat16", "serves no model with soft-capped scores, here at 50"),
        (with_sinks, "bfloat16", "serves no model with attention sinks"),
    ):
        with pytest.raises(ValueError, match=f"attention_backend='flashinfer' {words}"):
            resolve(EngineConfig(attention_backend="flashinfer", dtype=dtype), refused, hardware)


@pytest.mark.parametrize(
    ("changes", "capability", "max_extend_tokens", "words"),
    [
        ({"head_dim": 8}, (9, 0), 64, "takes head_dim 16 to 256, not 8"),
        ({"num_kv_heads": 1, "num_qo_heads": 32}, (9, 0), 64, "takes 16 query heads a KV head at most, not 32"),
        ({}, (7, 5), 64, r"needs compute capability 8.0 or more, not \(7, 5\)"),
        ({}, (9, 0), 1 << 25, "lower max_extend_tokens"),
    ],
)
def test_what_our_kernels_cannot_do_is_refused_by_name_and_left_to_torch_otherwise(
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, int],
    capability: tuple[int, int],
    max_extend_tokens: int,
    words: str,
) -> None:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(spec.triton, "in_use", lambda: True)
    whole = ModelConfig.from_hf(read_json("llama_biases", "config.json"))
    hardware = replace(find_hardware(), gpus=(Gpu("a GPU", 1 << 30, (9, 0)), Gpu("an old one", 1 << 30, (6, 0))))
    assert resolve(EngineConfig(), whole, hardware).attention_backend == "triton"
    model, hardware = replace(whole, **changes), replace(hardware, gpus=(Gpu("a GPU", 1 << 30, capability),))
    assert resolve(EngineConfig(), model, hardware, max_extend_tokens).attention_backend == "torch"
    with pytest.raises(ValueError, match=f"attention_backend='triton' .*{words}"):
        resolve(EngineConfig(attention_backend="triton"), model, hardware, max_extend_tokens)


def test_ranks_without_sockets_are_refused_before_anything_is_loaded(tiny: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("tensor_parallel", "followers", "rank_children"):
        monkeypatch.delitem(sys.modules, f"minisgl.llm.{name}", raising=False)
    monkeypatch.delitem(sys.modules, "minisgl.message.sockets", raising=False)
    monkeypatch.setitem(sys.modules, "zmq", None)
    with pytest.raises(ValueError, match=r"tensor_parallel_size=2 needs the extra `server`.*zmq is missing"):
        LLM(str(tiny), tensor_parallel_size=2)


def test_random_weights_of_a_hub_id_need_no_weights_from_the_hub(tiny: Path, monkeypatch: pytest.MonkeyPatch):
    def snapshot_download(repo_id: str, allow_patterns: list[str], ignore_patterns: list[str]) -> str:
        assert "*.safetensors" not in allow_patterns
        return str(tiny)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    with LLM("org/model", load_format="dummy", num_page_override=64) as llm:
        output = llm.generate("hi", SamplingParams(max_tokens=2, ignore_eos=True))[0]
    assert len(output["token_ids"]) == 2

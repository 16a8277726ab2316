"""What --quantization becomes for a model on a machine, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from support.dense_attention import read_json

from minisgl.distributed import TPInfo
from minisgl.engine import quantization
from minisgl.engine.config import EngineConfig
from minisgl.engine.quantization import resolve_quantization
from minisgl.models import ModelConfig

CPU, GPU = torch.device("cpu"), torch.device("cuda")
MODEL = replace(
    ModelConfig.from_hf(read_json("untied", "config.json")),
    hidden_size=128,
    intermediate_size=192,
    num_qo_heads=4,
    num_kv_heads=2,
    head_dim=32,
)


def resolve(name: str, *, is_gguf: bool = True, **changes: Any) -> str:
    parts = {"dtype": torch.bfloat16, "device": CPU, "model": MODEL, "tp": TPInfo()} | changes
    return resolve_quantization(name, is_gguf, **parts)


def test_auto_takes_the_integers_of_a_gguf_file_in_bfloat16_on_a_cpu():
    assert resolve("auto") == "gguf"
    assert resolve("auto", dtype=torch.float32) == "none"
    assert resolve("auto", is_gguf=False) == "none"
    assert resolve("auto", device=GPU) == "none"


@pytest.mark.parametrize("name", ["none", "gguf", "int8", "int4"])
def test_what_is_asked_for_is_taken_in_either_dtype(name: str):
    for dtype in (torch.float32, torch.bfloat16):
        assert resolve(name, dtype=dtype) == name


@pytest.mark.parametrize("name", ["gguf", "int8", "int4"])
def test_a_gpu_refuses_integers_by_name(name: str):
    with pytest.raises(ValueError, match=f"quantization='{name}' runs on a CPU only"):
        resolve(name, device=GPU)


def test_gguf_without_a_gguf_file_is_refused():
    with pytest.raises(ValueError, match="quantization='gguf' takes the integers of a GGUF file"):
        resolve("gguf", is_gguf=False)


@pytest.mark.parametrize("name", ["int8", "int4"])
def test_inputs_that_are_no_whole_groups_are_refused_with_numbers(name: str):
    with pytest.raises(ValueError, match=rf"quantization='{name}' .* 32 inputs: hidden_size=100 is no multiple"):
        resolve(name, model=replace(MODEL, hidden_size=100))


@pytest.mark.parametrize("name", ["gguf", "int8", "int4"])
def test_shares_that_cut_a_group_are_refused_with_numbers(name: str):
    assert resolve(name, tp=TPInfo(0, 2)) == name
    with pytest.raises(ValueError, match=r"intermediate_size=192 / 4 ranks = 48 is no multiple"):
        resolve(name, tp=TPInfo(0, 4))
    assert resolve("auto", tp=TPInfo(0, 4)) == "none"


def test_torch_without_a_compiler_is_said_to_be_slow(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    monkeypatch.setattr(quantization.cpu_ops, "in_use", lambda: False)
    assert resolve("int8") == "int8"
    assert "quantization='int8' without kernels in C++" in caplog.text
    assert resolve("auto") == "none"


def test_another_name_is_refused():
    with pytest.raises(ValueError, match="quantization='fp8' is not one of auto, none, int8, int4, gguf"):
        EngineConfig(quantization="fp8")

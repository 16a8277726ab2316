"""What loading holds: the weights, and besides them one tensor, or one layer that is being packed."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from support.gguf_dense import write_dense_gguf
from support.tiny_experts import make_expert_model, write_expert_gguf
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3MoeConfig

from minisgl.distributed import SINGLE, TPInfo
from minisgl.models import ModelConfig, load_model, open_checkpoint
from minisgl.models.hf_checkpoint import HFCheckpoint

MB = 2**20
CLEAR_REFS = Path("/proc/self/clear_refs")
SHAPE: dict[str, Any] = {
    "vocab_size": 2048,
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "tie_word_embeddings": False,
}
# At most 4 for a tensor in the file, 4 for its floats, 4 for a weight that is packed, 4 in passing; 2 for what else a
# process that has run other tests does meanwhile.
LIMIT = 18 * MB
FLOATS = (torch.float32, torch.bfloat16)


def _peak_can_be_read() -> bool:
    try:
        CLEAR_REFS.write_text("5")
    except OSError:
        return False
    return True


pytestmark = pytest.mark.skipif(not _peak_can_be_read(), reason="only Linux tells a peak that begins anew")


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    """11.5 million numbers, 46 MB in float32."""
    return LlamaForCausalLM(LlamaConfig(**SHAPE))


@pytest.fixture(scope="module", params=FLOATS, ids=str)
def folder(model: LlamaForCausalLM, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In shards of 15 MB."""
    path = tmp_path_factory.mktemp("sharded")
    model.to(request.param).save_pretrained(path, max_shard_size="15MB")
    assert len(list(path.glob("*.safetensors"))) > 1
    return path


def resident(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{key}:"))


def usage(checkpoint: Any, dtype: torch.dtype, tp: TPInfo = SINGLE, quantization: str = "none") -> tuple[int, int]:
    """Bytes that stay resident when the model is loaded, and how many more there were at most until then."""
    config = ModelConfig.from_hf(checkpoint.hf_config())
    before = resident_alone()
    CLEAR_REFS.write_text("5")
    model = load_model(checkpoint, config, dtype, torch.device("cpu"), tp, quantization=quantization)
    peak = resident("VmHWM")
    after = resident_alone()
    del model
    return after - before, peak - after


def resident_alone() -> int:
    """Without what is free already."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return resident("VmRSS")


@pytest.mark.parametrize(
    ("tp", "dtype"),
    [
        *((SINGLE, dtype) for dtype in FLOATS),
        (TPInfo(1, 2), torch.float32),
        pytest.param(TPInfo(1, 2), torch.bfloat16, marks=pytest.mark.nightly),
    ],
    ids=["whole-float32", "whole-bfloat16", "one of two ranks-float32", "one of two ranks-bfloat16"],
)
def test_sharded_safetensors_take_the_weights_and_little_more(
    folder: Path, dtype: torch.dtype, tp: TPInfo, model: LlamaForCausalLM
):
    kept, beyond = usage(open_checkpoint(folder), dtype, tp)
    assert kept < model.num_parameters() * dtype.itemsize // tp.size + LIMIT
    assert beyond < LIMIT


@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_floats_that_become_integers_take_these_and_little_more(
    quantization: str, folder: Path, model: LlamaForCausalLM
):
    """Integers with their scales take at most 1.25 bytes."""
    kept, beyond = usage(open_checkpoint(folder), torch.bfloat16, quantization=quantization)
    assert kept < model.num_parameters() * 1.25 + LIMIT / 2
    assert beyond < LIMIT


@pytest.mark.parametrize("quantization", ["gguf", "int4"])
def test_integers_of_a_gguf_file_that_stay_integers_take_the_weights_and_little_more(
    quantization: str, model: LlamaForCausalLM, tmp_path: Path
):
    path = write_dense_gguf(tmp_path / "model.gguf", model.float(), "Q8_0")
    kept, beyond = usage(open_checkpoint(path), torch.bfloat16, quantization=quantization)
    assert kept < model.num_parameters() * 1.25 + LIMIT / 2
    assert beyond < LIMIT


class Hoarding(HFCheckpoint):
    """Reads everything before it gives anything away."""

    def iter_weights(self, all_in_integers: bool = False) -> Any:
        return iter([(name, tensor.clone()) for name, tensor in super().iter_weights()])


def test_a_loader_that_keeps_two_copies_would_be_noticed(folder: Path):
    _, beyond = usage(Hoarding(folder), torch.float32)
    assert beyond > 1.2 * LIMIT


@pytest.mark.parametrize(("kind", "dtype"), [("F16", torch.float32), ("Q8_0", torch.bfloat16)])
def test_a_gguf_file_takes_the_weights_and_little_more(
    kind: str, dtype: torch.dtype, model: LlamaForCausalLM, tmp_path: Path
):
    path = write_dense_gguf(tmp_path / "model.gguf", model.float(), kind)
    kept, beyond = usage(open_checkpoint(path), dtype)
    assert kept < model.num_parameters() * dtype.itemsize + LIMIT
    assert beyond < LIMIT


@pytest.mark.parametrize("kind", ["F16", "Q4_1"])
def test_experts_of_a_gguf_file_take_the_weights_and_one_layer(kind: str, tmp_path: Path):
    """Of 3 million numbers in a layer; codes take a byte each, and a quarter more for their scales."""
    shape = SHAPE | {"num_hidden_layers": 6}
    config = Qwen3MoeConfig(**shape, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=256, head_dim=64)
    model = make_expert_model(config)
    kept, beyond = usage(
        open_checkpoint(write_expert_gguf(tmp_path / "model.gguf", model, lambda name: kind)), torch.bfloat16
    )
    assert kept < model.num_parameters() * 2 + LIMIT
    assert beyond < LIMIT

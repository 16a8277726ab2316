"""Weights in MXFP4: what transformers makes of them, and checkpoints that are not whole."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support.dense_attention import all_logits, load_saved
from support.mxfp4 import change_config, put_experts_in_mxfp4, random_bytes
from support.tiny_experts import CONFIGS, save_expert_model
from transformers import GptOssConfig, GptOssForCausalLM, Mxfp4Config
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from minisgl.distributed import TPInfo
from minisgl.models import mxfp4, open_checkpoint
from minisgl.moe import Routing
from minisgl.utils.grouped_tensor import dense

IDS = torch.randint(0, 256, (50,), generator=torch.Generator().manual_seed(1)).tolist()
CONFIG = GptOssConfig(**CONFIGS["gpt-oss"].to_dict() | {"hidden_size": 64, "intermediate_size": 64})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint as those of GPT-OSS are published."""
    return put_experts_in_mxfp4(save_expert_model(CONFIG, tmp_path_factory.mktemp("mxfp4"), stacked=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_every_number_is_that_of_transformers(dtype: torch.dtype):
    """But for those of which no weight is that large: there, twice a number may be infinite."""
    blocks = random_bytes(2, 252, 3, 16)
    scales = torch.arange(252).to(torch.uint8).view(1, -1, 1).repeat(2, 1, 3)
    ((name, ours),) = mxfp4.joined([("x_blocks", blocks), ("x_scales", scales)])
    assert name == "x.weight"
    assert torch.equal(dense(ours).to(dtype).mT, convert_moe_packed_tensors(blocks, scales, dtype=dtype))


def test_logits_equal_those_of_transformers(folder: Path):
    settings = Mxfp4Config(dequantize=True)
    theirs = GptOssForCausalLM.from_pretrained(folder, quantization_config=settings, dtype=torch.float32).eval()
    with torch.inference_mode():
        expected = theirs(torch.tensor([IDS])).logits[0]
    assert expected.std() > 0.3, "logits too flat to tell anything"
    torch.testing.assert_close(all_logits(load_saved(folder), IDS), expected, atol=1e-3, rtol=0)


def test_the_terms_of_two_ranks_sum_to_the_whole(folder: Path):
    x = torch.randn(7, 64, generator=torch.Generator().manual_seed(0))
    routing = Routing(torch.rand(7, 2), torch.stack((torch.arange(7) % 5, torch.arange(1, 8) % 5), dim=1).int())
    models = [load_saved(folder, tp) for tp in (TPInfo(), TPInfo(0, 2), TPInfo(1, 2))]
    whole, first, second = (model.model.layers[0].mlp.experts.partial(x, routing) for model in models)
    torch.testing.assert_close(first + second, whole, atol=1e-4, rtol=0)


def test_halves_are_one_weight_whatever_their_order_and_distance(folder: Path):
    checkpoint = open_checkpoint(folder)
    weights = dict(checkpoint.iter_weights())
    assert len(weights) == checkpoint.num_weights
    tensors = load_file(folder / "model.safetensors")
    backwards = dict(mxfp4.joined([(name, tensors[name]) for name in sorted(tensors, reverse=True)]))
    assert weights.keys() == backwards.keys()
    assert all(torch.equal(dense(weights[name]), dense(backwards[name])) for name in weights)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (
            {"x_blocks": torch.zeros(2, 4, 1, 16, dtype=torch.uint8)},
            "'x_blocks' of a weight in MXFP4 has no other half",
        ),
        ({"x_scales": torch.zeros(2, 4, 1, dtype=torch.uint8)}, "'x_scales' of a weight in MXFP4 has no other half"),
        ({"x_blocks": torch.zeros(2, 4, 1, 16)}, "'x_blocks' of a weight in MXFP4 is torch.float32"),
        ({"x_scales": torch.zeros(2, dtype=torch.uint8)}, r"'x_scales' of a weight in MXFP4 is torch.uint8 \[2\]"),
        (
            {"x_blocks": torch.zeros(2, 4, 1, 16).byte(), "x_scales": torch.zeros(2, 4, 3).byte()},
            r"'x' in MXFP4: there are scales \[2, 4, 3\] for \[2, 4, 1, 32\]",
        ),
    ],
)
def test_halves_that_do_not_fit_are_refused_by_name(tensors: dict[str, torch.Tensor], message: str):
    with pytest.raises(ValueError, match=message):
        list(mxfp4.joined(tensors.items()))


def test_other_architectures_have_no_weights_in_mxfp4(tmp_path: Path, folder: Path):
    (tmp_path / "config.json").write_text((folder / "config.json").read_text(encoding="utf-8"), encoding="utf-8")
    change_config(tmp_path, architectures=["LlamaForCausalLM"])
    with pytest.raises(ValueError, match="weights quantised by method 'mxfp4' are not supported"):
        open_checkpoint(tmp_path)

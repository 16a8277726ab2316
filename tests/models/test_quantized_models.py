"""Whole models in integers: near their floats, and the same bits beside any batch mates and cached tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support.dense_attention import all_logits
from support.engine_logits import watch_logits
from support.gguf_variants import DATA
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

from minisgl import LLM, SamplingParams
from minisgl.distributed import TPInfo
from minisgl.kernel import cpu_ops
from minisgl.layers import packed
from minisgl.models import ModelConfig, load_model, open_checkpoint
from minisgl.models.base import BaseCausalLM

CPU = torch.device("cpu")
IDS = torch.randint(0, 256, (40,), generator=torch.Generator().manual_seed(1)).tolist()
SHAPE: dict[str, Any] = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.2,
    "bos_token_id": 256,
    "eos_token_id": 257,
}
MODELS: dict[str, Any] = {
    "tied": lambda: LlamaForCausalLM(LlamaConfig(**SHAPE, tie_word_embeddings=True)),
    "biases": lambda: LlamaForCausalLM(LlamaConfig(**SHAPE, attention_bias=True, mlp_bias=True)),
    "experts": lambda: Qwen3MoeForCausalLM(  # all are asked for each token, or rounding would choose other ones
        Qwen3MoeConfig(**SHAPE, num_experts=4, num_experts_per_tok=4, moe_intermediate_size=64, head_dim=16)
    ),
}
ERRORS = {"int8": 0.05, "int4": 0.5}  # of random weights, whose logits no training has made robust
FILES = ("q4_k", "q5_k", "q6_k", "mixed")


@pytest.fixture(scope="module", params=MODELS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("model")
    MODELS[request.param]().save_pretrained(path)
    return path


def load(path: Path, quantization: str, dtype: torch.dtype = torch.float32, tp: TPInfo | None = None) -> BaseCausalLM:
    checkpoint = open_checkpoint(path)
    config = ModelConfig.from_hf(checkpoint.hf_config())
    return load_model(checkpoint, config, dtype, CPU, tp or TPInfo(), quantization=quantization)


def off(got: torch.Tensor, expected: torch.Tensor) -> float:
    return float((got - expected).norm() / expected.norm())


@pytest.mark.parametrize("quantization", ERRORS)
def test_logits_are_near_those_of_floats(quantization: str, folder: Path):
    expected = all_logits(load(folder, "none"), IDS)
    got = all_logits(load(folder, quantization), IDS)
    assert 0 < off(got, expected) < ERRORS[quantization]


@pytest.mark.parametrize("kind", FILES)
def test_logits_of_a_files_integers_are_near_those_of_floats(kind: str):
    path = DATA / f"llama_{kind}.gguf"
    assert 0 < off(all_logits(load(path, "gguf"), IDS), all_logits(load(path, "none"), IDS)) < 0.05


@pytest.mark.parametrize("kind", FILES[:-1])  # the other one has matrices of plain floats
def test_no_matrix_of_a_file_stays_a_float(kind: str):
    matrices = [
        name for name, weight in load(DATA / f"llama_{kind}.gguf", "gguf").named_parameters() if weight.dim() > 1
    ]
    assert not matrices


@pytest.mark.parametrize("quantization", ERRORS)
def test_no_matrix_stays_a_float_but_what_chooses_experts_and_embeds(quantization: str, folder: Path):
    matrices = {name for name, weight in load(folder, quantization).named_parameters() if weight.dim() > 1}
    assert all(name.endswith("mlp.gate.weight") for name in matrices)


@pytest.mark.parametrize("quantization", ERRORS)
def test_torch_without_kernels_gives_the_same_numbers(quantization: str, folder: Path, monkeypatch: pytest.MonkeyPatch):
    expected = all_logits(load(folder, quantization), IDS)
    monkeypatch.setattr(packed, "in_use", lambda: False)
    assert (
        off(all_logits(load(folder, quantization), IDS), expected) < 0.01
    )  # a last bit may tip an activation's integer


@pytest.mark.parametrize("quantization", ERRORS)
def test_random_weights_for_trying_out_are_quantised_too(quantization: str, folder: Path):
    checkpoint = open_checkpoint(folder)
    config = ModelConfig.from_hf(checkpoint.hf_config())
    model = load_model(checkpoint, config, torch.float32, CPU, load_format="dummy", quantization=quantization)
    assert all_logits(model, IDS).isfinite().all()


def test_each_of_two_ranks_holds_its_part_of_the_integers(folder: Path):
    whole = load(folder, "int8")
    halves = [load(folder, "int8", tp=TPInfo(rank, 2)) for rank in range(2)]
    x = torch.randn(5, 64, generator=torch.Generator().manual_seed(0))
    shared = sum(
        half.model.layers[0].self_attn.o_proj.partial(x[:, 32 * r : 32 * r + 32]) for r, half in enumerate(halves)
    )
    torch.testing.assert_close(shared, whole.model.layers[0].self_attn.o_proj.partial(x), rtol=1e-5, atol=1e-4)


@pytest.fixture(scope="module", params=[("gguf", "float32"), ("gguf", "bfloat16"), ("int4", "bfloat16")], ids=str)
def llm(request: pytest.FixtureRequest) -> Iterator[LLM]:
    quantization, dtype = request.param
    path = str(DATA / "llama_mixed.gguf")
    with LLM(path, quantization=quantization, dtype=dtype, num_page_override=512, max_extend_tokens=64) as engine:
        assert engine.spec.quantization == quantization
        yield engine


@pytest.mark.skipif(not cpu_ops.in_use(), reason="torch's own products depend on the number of rows")
def test_what_a_token_gets_does_not_depend_on_who_is_beside_it_or_what_is_cached(llm: LLM):
    greedy = SamplingParams(temperature=0, max_tokens=8, logprobs=0, ignore_eos=True)
    prompts = [IDS[:30], IDS[:20] + IDS[5:9], IDS[3:], IDS[:7]]

    def run(*wanted: list[int]) -> list[list[float]]:
        outputs = llm.generate(list(wanted), greedy)
        return [[entry.logprob for entry in output["logprobs"]] for output in outputs]

    alone = []
    for prompt in prompts:
        llm.purge_cache()
        alone += run(prompt)
    llm.purge_cache()
    assert run(*prompts) == alone
    assert run(*prompts) == alone  # from the cache
    logits = watch_logits(llm, IDS)
    assert torch.equal(watch_logits(llm, IDS[:33]), logits[:33])

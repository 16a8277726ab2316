"""A GGUF file through the whole model: logits against the reference, for every type of block and mix of types."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.dense_attention import all_logits, load_saved
from support.dense_models import make_dense_model
from support.engine_logits import watch_logits
from support.gguf_dense import MODELS, write_dense_gguf
from support.gguf_variants import LOGITS, llama_variant, reference_variant

from minisgl import LLM


@pytest.mark.parametrize("variant", LOGITS["models"])
def test_logits_of_every_llama_are_those_of_the_reference(variant: str, tmp_path: Path) -> None:
    logits = all_logits(load_saved(reference_variant(tmp_path / "model.gguf", variant)), LOGITS["ids"])
    expected = LOGITS["models"][variant]
    assert logits.argmax(-1).tolist() == expected["argmax"]
    torch.testing.assert_close(logits[-1, :16], torch.tensor(expected["last_logits"]), rtol=0, atol=1e-3)


@pytest.mark.parametrize("variant", LOGITS["models"])
def test_the_engine_gives_them_in_chunks_of_16(variant: str, tmp_path: Path) -> None:
    path = str(reference_variant(tmp_path / "model.gguf", variant))
    with LLM(path, dtype="float32", max_extend_tokens=16, num_page_override=128) as llm:
        logits = watch_logits(llm, LOGITS["ids"])
    expected = LOGITS["models"][variant]
    assert logits.argmax(-1).tolist() == expected["argmax"]
    torch.testing.assert_close(logits[-1, :16], torch.tensor(expected["last_logits"]), rtol=0, atol=1e-3)


def test_a_file_with_an_unknown_scaling_of_rope_is_refused_by_name(tmp_path: Path) -> None:
    for more in ({}, {"llama.rope.scaling.factor": 4.0}):
        path = llama_variant(tmp_path / "model.gguf", metadata={"llama.rope.scaling.type": "xpos", **more})
        with pytest.raises(ValueError, match="rope_type='xpos' is not supported"):
            LLM(str(path))


IDS = torch.randint(0, 256, (50,), generator=torch.Generator().manual_seed(1)).tolist()


@pytest.mark.parametrize("name", MODELS)
def test_logits_of_every_dense_architecture_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    theirs = make_dense_model(MODELS[name])
    with torch.inference_mode():
        expected = theirs(torch.tensor([IDS])).logits[0]
    ours = all_logits(load_saved(write_dense_gguf(tmp_path / "model.gguf", theirs)), IDS)
    torch.testing.assert_close(ours, expected, atol=1e-3, rtol=0)

"""Logits and greedy text of tiny checkpoints equal Hugging Face's, for every spelling of the configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from support.dense_attention import TINY, all_logits, make_model, read_json, tiny_file, tiny_reference, tiny_weights
from support.engine_logits import watch_logits
from support.tiny_model import make_tokenizer

from minisgl import LLM, SamplingParams

FOLDERS = sorted(path.name for path in TINY.iterdir() if path.is_dir())


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_tiny_checkpoint_gives_the_logits_of_hugging_face(folder: str):
    ref = tiny_reference(folder)
    logits = all_logits(make_model(read_json(folder, "config.json"), tiny_weights(folder).items()), ref["ids"])
    assert logits.dtype == torch.float32
    assert logits.argmax(-1).tolist() == ref["argmax"]
    torch.testing.assert_close(logits[-1, :16], torch.tensor(ref["last_logits"]), atol=1e-3, rtol=0)


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_tiny_checkpoint_gives_them_and_the_text_in_chunks_of_64_cold_and_warm(folder: str, tmp_path: Path):
    make_tokenizer().save_pretrained(tmp_path)
    (tmp_path / "config.json").symlink_to(TINY / folder / "config.json")
    (tmp_path / "model.safetensors").symlink_to(tiny_file(folder))
    ref = tiny_reference(folder)
    params = SamplingParams(max_tokens=len(ref["greedy"]), ignore_eos=True)
    with LLM(str(tmp_path), max_extend_tokens=64, num_page_override=512) as llm:
        logits = watch_logits(llm, ref["ids"])
        assert logits.argmax(-1).tolist() == ref["argmax"]
        torch.testing.assert_close(logits[-1, :16], torch.tensor(ref["last_logits"]), atol=1e-3, rtol=0)
        for cached in (0, 199):
            (output,) = llm.generate(ref["ids"], params)
            assert (output["token_ids"], output["cached_tokens"]) == (ref["greedy"], cached)
        llm.cache_manager.check_integrity()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rope_parameters": {"rope_type": "xpos"}}, "rope_type='xpos' is not supported"),
        ({"rope_parameters": None, "rope_scaling": {"rope_type": "xpos"}}, "rope_type='xpos' is not supported"),
        ({"rope_parameters": None, "rope_scaling": {"type": "xpos"}}, "rope_type='xpos' is not supported"),
        ({"architectures": ["FooForCausalLM"]}, "unknown model architecture 'FooForCausalLM'"),
    ],
)
def test_a_checkpoint_of_a_kind_that_nobody_knows_is_refused_by_name(
    change: dict[str, Any], message: str, tmp_path: Path
):
    make_tokenizer().save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(read_json("untied", "config.json") | change))
    (tmp_path / "model.safetensors").symlink_to(tiny_file("untied"))
    with pytest.raises(ValueError, match=message):
        LLM(str(tmp_path))


def test_bfloat16_stays_near_float32():
    config, ref = read_json("qwen3_qk_norm", "config.json"), read_json("qwen3_qk_norm", "ref.json")
    weights = tiny_weights("qwen3_qk_norm")
    exact = all_logits(make_model(config, weights.items()), ref["ids"])
    rounded = all_logits(make_model(config, weights.items(), torch.bfloat16), ref["ids"])
    assert rounded.dtype == torch.bfloat16
    assert (rounded.float() - exact).norm() < 0.03 * exact.norm()

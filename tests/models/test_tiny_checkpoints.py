"""Logits and greedy text of tiny checkpoints equal Hugging Face's, for every spelling of the configuration."""

from __future__ import annotations

import pytest
import torch
from support.dense_attention import TINY, all_logits, greedy, make_model, read_json, tiny_weights

FOLDERS = sorted(path.name for path in TINY.iterdir() if path.is_dir())


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_tiny_checkpoint_gives_the_logits_and_text_of_hugging_face(folder: str):
    ref = read_json(folder.partition("_v4config")[0], "ref.json")
    model = make_model(read_json(folder, "config.json"), tiny_weights(folder).items())

    logits = all_logits(model, ref["ids"])

    assert logits.dtype == torch.float32
    assert logits.argmax(-1).tolist() == ref["argmax"]
    torch.testing.assert_close(logits[-1, :16], torch.tensor(ref["last_logits"]), atol=1e-3, rtol=0)
    assert greedy(model, ref["ids"], len(ref["greedy"])) == ref["greedy"]


def test_bfloat16_stays_near_float32():
    config, ref = read_json("qwen3_qk_norm", "config.json"), read_json("qwen3_qk_norm", "ref.json")
    weights = tiny_weights("qwen3_qk_norm")
    exact = all_logits(make_model(config, weights.items()), ref["ids"])
    rounded = all_logits(make_model(config, weights.items(), torch.bfloat16), ref["ids"])
    assert rounded.dtype == torch.bfloat16
    assert (rounded.float() - exact).norm() < 0.03 * exact.norm()

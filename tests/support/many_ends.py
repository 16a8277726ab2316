"""A tiny model whose files name several end tokens, each file another one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.tiny_model import EOS, TEMPLATE, make_tiny_model, make_tokenizer

TURN_END, LISTED = 258, 299  # the template's; one that only generation_config.json names
ENDS = [EOS, TURN_END, LISTED]


def make_model_of_many_ends(folder: Path) -> Path:
    make_tiny_model(folder)
    tokenizer = make_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<turn>"]})
    tokenizer.chat_template = TEMPLATE.replace("</s>", "<turn>")
    tokenizer.save_pretrained(folder)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [EOS, LISTED, 10**6]}))
    return folder


def forcing(token_id: int) -> dict[str, Any]:
    """Sampling in which this token is the most likely one wherever it is allowed, and none is hidden."""
    return {"temperature": 0, "logit_bias": {token_id: 100}, "max_tokens": 6, "skip_special_tokens": False}

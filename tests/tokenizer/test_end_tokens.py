"""The tokens that end a text as the tokenizer has it: EOS, and what the chat template writes behind a reply."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.chat_templates import FAMILIES, make_tokenizer

from minisgl.tokenizer import end_token_ids, load_tokenizer

CHATML, CHATML_TOKENS, _ = FAMILIES["ChatML (SmolLM, Qwen)"]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_ends_its_turns_as_its_template_does(family: str) -> None:
    template, special, end = FAMILIES[family]
    tokenizer = make_tokenizer(template, special)
    assert end_token_ids(tokenizer) == {tokenizer.backend.token_to_id(token) for token in (special[1], end)}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_chat_of_every_family_is_encoded_as_transformers_does_it(family: str) -> None:
    template, special, _ = FAMILIES[family]
    tokenizer = make_tokenizer(template, special)
    chat = [{"role": role, "content": f" {role}'s "} for role in ("user", "assistant", "user")]
    expected = tokenizer.hf.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
    assert tokenizer.apply_chat_template(chat).tolist() == expected


def test_an_added_token_that_is_not_special_ends_a_turn_too() -> None:
    tokenizer = make_tokenizer(CHATML.replace("<|im_end|>", "[end]"), CHATML_TOKENS)
    tokenizer.hf.add_tokens(["[end]"])
    assert end_token_ids(tokenizer) == {tokenizer.hf.eos_token_id, tokenizer.backend.token_to_id("[end]")}


@pytest.mark.parametrize(
    "template",
    [
        None,
        "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}",
        "{{ messages[-1].content }}",
        "{{ messages[0].content }}<|im_end|>",
        "{{ raise_exception('no') }}",
        "{{ 1 / 0 }}",
        "{{ messages[-1].content }}{{ '\\ud800' }}",
    ],
)
def test_where_the_template_writes_no_token_it_is_eos_alone(template: str | None) -> None:
    tokenizer = make_tokenizer(template, CHATML_TOKENS)
    assert end_token_ids(tokenizer) == {tokenizer.hf.eos_token_id}


def test_a_tokenizer_may_have_no_end_token() -> None:
    tokenizer = make_tokenizer(None, CHATML_TOKENS)
    tokenizer.hf.eos_token = None
    assert end_token_ids(tokenizer) == frozenset()


@pytest.mark.parametrize("eos", ["<|im_end|>", {"content": "<|im_end|>", "lstrip": False, "__type": "AddedToken"}])
@pytest.mark.parametrize("name", ["tokenizer_config.json", "special_tokens_map.json"])
def test_eos_is_found_wherever_the_folder_has_it(name: str, eos: Any, tmp_path: Path) -> None:
    made = make_tokenizer(None, CHATML_TOKENS)
    made.backend.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text("{}")
    (tmp_path / name).write_text(json.dumps({"eos_token": eos}))
    assert end_token_ids(load_tokenizer(tmp_path)) == {made.backend.token_to_id("<|im_end|>")}


def test_smollm2_ends_its_turns_with_its_end_token(smollm2) -> None:
    assert end_token_ids(smollm2) == {smollm2.hf.eos_token_id}

"""The token that ends a turn is the one that the chat template writes behind a reply."""

from __future__ import annotations

import pytest
from support.chat_templates import FAMILIES, make_tokenizer

from minisgl.tokenizer import turn_end_ids

CHATML, CHATML_TOKENS, _ = FAMILIES["ChatML (SmolLM, Qwen)"]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_ends_its_turns_as_its_template_does(family: str) -> None:
    template, special, end = FAMILIES[family]
    tokenizer = make_tokenizer(template, special)
    assert turn_end_ids(tokenizer) == {tokenizer.backend.token_to_id(end)}


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
    assert turn_end_ids(tokenizer) == {tokenizer.backend.token_to_id("[end]")}


@pytest.mark.parametrize(
    "template",
    [
        None,
        "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}",
        "{{ messages[-1].content }}",
        "{{ messages[0].content }}<|im_end|>",
        "{{ raise_exception('no') }}",
        "{{ 1 / 0 }}",
    ],
)
def test_where_the_template_writes_no_token_there_is_none(template: str | None) -> None:
    assert turn_end_ids(make_tokenizer(template, CHATML_TOKENS)) == frozenset()


def test_smollm2_ends_its_turns_with_its_end_token(smollm2) -> None:
    assert turn_end_ids(smollm2) == {smollm2.hf.eos_token_id}

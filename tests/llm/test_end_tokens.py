"""Every end token that any of a model's files names, or that its chat template writes, ends a text."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from support.tiny_model import EOS, TEMPLATE, make_tiny_model, make_tokenizer

from minisgl import LLM, SamplingParams

TURN_END, LISTED = 258, 299  # the template's; one that only generation_config.json names
ENDS = [EOS, TURN_END, LISTED]


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    folder = make_tiny_model(tmp_path_factory.mktemp("ends"))
    tokenizer = make_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<turn>"]})
    tokenizer.chat_template = TEMPLATE.replace("</s>", "<turn>")
    tokenizer.save_pretrained(folder)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [EOS, LISTED, 10**6]}))
    with LLM(str(folder), num_page_override=512) as llm:
        yield llm


def forced(token_id: int, **more: object) -> SamplingParams:
    """Such that this token is the most likely one wherever it is allowed."""
    return SamplingParams(**{"logit_bias": {token_id: 100}, "max_tokens": 6, "skip_special_tokens": False, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize("end", ENDS)
def test_any_end_token_ends_a_text_and_is_not_shown(llm: LLM, end: int) -> None:
    (output,) = llm.generate("hello", forced(end))
    assert (output["finish_reason"], output["token_ids"], output["text"]) == ("stop", [end], "")
    assert llm.chat([{"role": "user", "content": "hello"}], forced(end))["token_ids"] == [end]


@pytest.mark.parametrize("end", ENDS)
def test_ignore_eos_ignores_all_of_them(llm: LLM, end: int) -> None:
    (output,) = llm.generate("hello", forced(end, ignore_eos=True))
    assert (output["finish_reason"], output["token_ids"]) == ("length", [end] * 6)


@pytest.mark.parametrize("end", ENDS)
def test_min_tokens_masks_all_of_them(llm: LLM, end: int) -> None:
    (output,) = llm.generate("hello", forced(end, min_tokens=5))
    assert output["token_ids"][5:] == [end]
    assert not set(output["token_ids"][:5]) & set(ENDS)

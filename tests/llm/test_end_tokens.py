"""Every end token that any of a model's files names, or that its chat template writes, ends a text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.many_ends import ENDS, LISTED, forcing, make_model_of_many_ends
from support.tiny_model import EOS, make_tiny_model, make_tokenizer

from minisgl import LLM, SamplingParams


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    with LLM(str(make_model_of_many_ends(tmp_path_factory.mktemp("ends"))), num_page_override=512) as llm:
        yield llm


def forced(token_id: int, **more: Any) -> SamplingParams:
    return SamplingParams(**forcing(token_id), **more)


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


@pytest.mark.parametrize("end", ENDS)
def test_stop_tokens_end_a_text_under_ignore_eos_too_and_are_masked_with_the_others(llm: LLM, end: int) -> None:
    (output,) = llm.generate("hello", forced(end, stop_token_ids=[end], ignore_eos=True))
    assert (output["finish_reason"], output["token_ids"], output["text"]) == ("stop", [end], "")
    (output,) = llm.generate("hello", forced(end, stop_token_ids=[end, 7], ignore_eos=True, min_tokens=2))
    assert output["token_ids"][2:] == [end]
    assert not {end, 7} & set(output["token_ids"][:2])


@pytest.mark.parametrize(
    ("config", "generation_config", "tokenizer", "ends"),
    [
        (EOS, [EOS, LISTED], "</s>", [EOS, LISTED]),
        (EOS, LISTED, None, [EOS, LISTED]),
        ([EOS, LISTED], None, None, [EOS, LISTED]),
        (LISTED, None, None, [LISTED]),
        (None, None, "</s>", [EOS]),
        (None, [LISTED], None, [LISTED]),
        (None, None, None, []),
    ],
)
def test_whichever_files_name_them(
    config: Any, generation_config: Any, tokenizer: str | None, ends: list[int], tmp_path: Path
) -> None:
    make_tiny_model(tmp_path)
    made = make_tokenizer()
    made.eos_token, made.chat_template = tokenizer, None
    made.save_pretrained(tmp_path)
    (tmp_path / "chat_template.jinja").unlink()
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"eos_token_id": config}))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": generation_config}))
    with LLM(str(tmp_path), num_page_override=64) as llm:
        for token_id in (EOS, LISTED):
            (output,) = llm.generate("hello", forced(token_id))
            ended = token_id in ends
            assert output["finish_reason"] == ("stop" if ended else "length")
            assert output["token_ids"] == [token_id] * (1 if ended else 6)

"""Why a prompt was computed or not, asked of a tiny random model and told by it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from minisgl import LLM, AsyncLLM, SamplingParams
from minisgl.core import Explanation

TEXT = "You are helpful. It is 12:07."
LATER = "You are helpful. It is 12:31."
AT = len("You are helpful. It is 12:")
CHAT = [{"role": "user", "content": "Hi you"}]
ONE = SamplingParams(max_tokens=1, ignore_eos=True)


def causes(facts: dict[str, Any]) -> dict[str, int]:
    return {cause: tokens for cause, tokens in Explanation(**facts).causes.items() if tokens}


def test_an_output_says_why_and_where_its_prompt_left_the_cache(llm: LLM) -> None:
    first, then = (llm.generate(text, ONE)[0]["explanation"] for text in (TEXT, LATER))
    assert causes(first) == {"never_seen": len(TEXT)}
    assert causes(then) == {"hit": AT, "never_seen": len(TEXT) - AT}
    assert then["left_at"] == AT
    assert llm.client.tokenizer.decode(then["branch"]) == "07."


def test_a_question_foretells_it_and_changes_nothing(llm: LLM) -> None:
    llm.generate(TEXT, ONE)
    asked = llm.explain(LATER)
    assert asked.explanation == llm.explain(LATER).explanation
    assert asked.explanation.facts() == llm.generate(LATER, ONE)[0]["explanation"]
    assert [segment.text for segment in asked.segments(llm.client.tokenizer)] == [LATER[:AT], "31."]
    chat = llm.explain_chat(CHAT)
    assert chat.explanation.facts() == llm.chat(CHAT, ONE)["explanation"]


def test_an_output_is_plain_data_that_any_program_can_write_down(llm: LLM) -> None:
    output = llm.generate(TEXT, ONE)[0]
    assert json.loads(json.dumps(output))["explanation"]["never_seen"] == len(TEXT)


def test_a_stream_tells_it_with_its_first_delta_and_with_the_output(llm: LLM) -> None:
    deltas = list(llm.generate(TEXT, SamplingParams(max_tokens=3, ignore_eos=True), stream=True))
    assert ["explanation" in delta for delta in deltas] == [True, False, False]
    assert deltas[-1]["output"]["explanation"] == deltas[0]["explanation"]


def test_each_choice_and_prompt_has_its_own(llm: LLM) -> None:
    params = SamplingParams(max_tokens=1, n=2, ignore_eos=True)
    for output in llm.generate([TEXT, "Hello"], params):
        each = [sum(causes(choice["explanation"]).values()) for choice in output["choices"]]
        assert each == [output["prompt_tokens"]] * 2


def test_an_early_explanation_comes_before_the_first_token(llm: LLM) -> None:
    from dataclasses import replace

    from minisgl.llm import AsyncClient

    async def main() -> list[Any]:
        client = AsyncClient(llm.client)
        prepared = replace(await client.prepare(TEXT, ONE), explain=True)
        heard: list[tuple[int, ...]] = []
        news = [delta async for deltas in client.run([prepared], on_start=heard.append) for delta in deltas]
        assert [len(uids) for uids in heard] == [1]
        return news

    deltas = asyncio.run(main())
    assert causes(deltas[0]["explanation"]) == {"never_seen": len(TEXT)}
    assert deltas[0]["queue_s"] >= 0
    assert sum(len(delta["token_ids"]) for delta in deltas) == 1


def test_where_nothing_is_explained_the_question_is_refused_and_outputs_are_without(tiny: Path) -> None:
    with LLM(str(tiny), num_page_override=256, explain=False) as llm:
        assert "explanation" not in llm.generate(TEXT, ONE)[0]
        with pytest.raises(ValueError, match="--no-explain"):
            llm.explain(TEXT)


def test_a_cache_that_keeps_nothing_has_not_looked(tiny: Path) -> None:
    with LLM(str(tiny), num_page_override=256, cache_type="naive") as llm:
        assert causes(llm.generate(TEXT, ONE)[0]["explanation"]) == {"not_looked_up": len(TEXT)}
        assert causes(llm.explain(TEXT).explanation.facts()) == {"not_looked_up": len(TEXT)}


@pytest.mark.parametrize("prompt", ["", [], [300], "x" * 513])
def test_what_can_never_run_is_not_explained(llm: LLM, prompt: Any) -> None:
    with pytest.raises(ValueError, match=r"prompt|token id"):
        llm.explain(prompt)


def test_asyncio_programs_ask_the_same(tiny: Path) -> None:
    async def main() -> None:
        async with AsyncLLM(str(tiny), num_page_override=512) as llm:
            await llm.generate(TEXT, ONE, cache_salt="a")
            found = await llm.client.explain(LATER, cache_salt="a")
            assert causes(found.explanation.facts()) == {"hit": AT, "never_seen": len(TEXT) - AT}
            assert causes((await llm.client.explain(LATER)).explanation.facts()) == {
                "other_namespace": AT,
                "never_seen": len(TEXT) - AT,
            }
            assert (await llm.client.explain_chat(CHAT, {})).explanation.left_at == 0

    asyncio.run(main())

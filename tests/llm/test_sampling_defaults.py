"""Advice on sampling from a model's files: taken by chats, offered to programs, told to the server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from support.tiny_model import make_tiny_model

from minisgl import LLM, AsyncLLM, SamplingParams
from minisgl.llm.engine_process import info_of
from minisgl.message import EngineReady
from minisgl.message.wire import news_codec

ADVISED = {"temperature": 0.6, "top_k": 20, "top_p": 0.95}


def make_advised_model(folder: Path) -> Path:
    make_tiny_model(folder)
    file = folder / "generation_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"do_sample": True} | ADVISED))
    return folder


def test_a_prompt_of_a_program_is_greedy_until_it_takes_the_model_s_advice(tmp_path: Path) -> None:
    with LLM(str(make_advised_model(tmp_path)), num_page_override=64) as llm:
        assert llm.sampling_defaults == ADVISED
        prompts = ["a", "b", "c"]
        greedy = [output["token_ids"] for output in llm.generate(prompts, SamplingParams(temperature=0))]
        assert [output["token_ids"] for output in llm.generate(prompts)] == greedy
        advised = SamplingParams(**llm.sampling_defaults, max_tokens=30, seed=1)
        assert (advised.temperature, advised.top_k, advised.top_p) == (0.6, 20, 0.95)
        assert [output["token_ids"] for output in llm.generate(prompts, advised)] != greedy


HI = [{"role": "user", "content": "hi"}]
GIVEN = {"seed": 1, "max_tokens": 30, "ignore_eos": True}


def test_a_chat_takes_the_model_s_advice_for_what_is_not_given(tmp_path: Path) -> None:
    with LLM(str(make_advised_model(tmp_path)), num_page_override=256) as llm:
        prompt = llm.tokenizer.apply_chat_template(HI, add_generation_prompt=True, return_dict=False)
        for params, same_as in (
            ({**GIVEN}, GIVEN | ADVISED),
            (GIVEN | {"temperature": 1.5, "top_k": 3}, GIVEN | ADVISED | {"temperature": 1.5, "top_k": 3}),
            (GIVEN | {"temperature": 0}, GIVEN),
        ):
            expected = llm.generate(prompt, SamplingParams(**same_as))[0]["token_ids"]
            assert llm.chat(HI, SamplingParams(**params))["token_ids"] == expected
        assert llm.client.prepare_chat(HI, None, {}).params == SamplingParams(**ADVISED)


def test_an_async_chat_takes_it_too(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncLLM(str(make_advised_model(tmp_path)), num_page_override=256) as llm:
            out = await llm.chat(HI, SamplingParams(**GIVEN))
            deltas = [delta async for delta in llm.stream_chat(HI, SamplingParams(**GIVEN))]
            expected = await llm.chat(HI, SamplingParams(**GIVEN, **ADVISED))
            greedy = await llm.chat(HI, SamplingParams(**GIVEN, temperature=0))
            assert out["token_ids"] == deltas[-1]["output"]["token_ids"] == expected["token_ids"] != greedy["token_ids"]

    asyncio.run(main())


def test_an_engine_tells_the_server_and_integers_stay_integers(tmp_path: Path) -> None:
    with LLM(str(make_advised_model(tmp_path)), num_page_override=64) as llm:
        ready = EngineReady(info_of(llm._parts, llm.config, tmp_path))
    (received,) = news_codec().decode(news_codec().encode([ready]))
    assert isinstance(received, EngineReady)
    assert received.info.sampling_defaults == ADVISED
    assert isinstance(received.info.sampling_defaults["top_k"], int)

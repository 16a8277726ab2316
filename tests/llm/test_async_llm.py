"""`AsyncLLM`: many requests on one event loop."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from minisgl import LLM, AsyncLLM, SamplingParams

SHORT = SamplingParams(max_tokens=8, ignore_eos=True)
LONG = SamplingParams(max_tokens=400, ignore_eos=True)


def free_pages(llm: LLM) -> int:
    return llm.cache_manager.num_free_pages + llm.stats()["evictable_tokens"]


def test_many_at_once_give_what_one_by_one_gives(tiny: Path) -> None:
    async def main() -> None:
        async with AsyncLLM(str(tiny), num_page_override=512) as llm:
            prompts = [f"prompt {i}" for i in range(8)]
            outs = await asyncio.gather(*(llm.generate(prompt, SHORT) for prompt in prompts))
            alone = [(await llm.generate(prompt, SHORT))["token_ids"] for prompt in prompts]
            assert [out["token_ids"] for out in outs] == alone

    asyncio.run(main())


def test_a_stream_joins_to_the_output(tiny: Path) -> None:
    async def main() -> None:
        async with AsyncLLM(str(tiny), num_page_override=512) as llm:
            chunks = [chunk async for chunk in llm.stream_chat([{"role": "user", "content": "hi"}], SHORT)]
            assert "".join(chunk["text"] for chunk in chunks) == chunks[-1]["output"]["text"]
            assert (await llm.chat([{"role": "user", "content": "hi"}], SHORT))["text"] == chunks[-1]["output"]["text"]

    asyncio.run(main())


def test_keywords_are_those_of_an_llm_and_prompts_too(tiny: Path) -> None:
    hi = [{"role": "user", "content": "hi"}]

    async def main() -> None:
        async with AsyncLLM(str(tiny), num_page_override=512) as llm:
            for call in (llm.chat, llm.stream_chat):
                with pytest.raises(TypeError, match="max_tokens is a field of SamplingParams"):
                    await call(hi, max_tokens=3)  # type: ignore[misc]
                with pytest.raises(TypeError, match="unknown keyword 'stream'"):
                    await call(hi, SHORT, stream=True)  # type: ignore[misc]
                with pytest.raises(ValueError, match="several conversations"):
                    await call([hi, hi], SHORT)  # type: ignore[misc, list-item]
            plain = await llm.chat(hi, SHORT)
            assert (await llm.chat(hi, SHORT, template={"any": 1}))["token_ids"] == plain["token_ids"]
            ids = await llm.generate([72, 105], SHORT)
            for prompt in (np.array([[72, 105]]), {"input_ids": [72, 105, 0], "attention_mask": [1, 1, 0]}):
                assert (await llm.generate(prompt, SHORT))["token_ids"] == ids["token_ids"]
            for wrong in (np.array(5), 5, {"input_ids": None}, {"a": 1}):
                with pytest.raises(ValueError, match="token ids"):
                    await llm.generate(wrong, SHORT)  # type: ignore[arg-type]

    asyncio.run(main())


def test_abort_ends_a_request_with_what_there_is(tiny: Path) -> None:
    async def main() -> None:
        async with AsyncLLM(str(tiny), num_page_override=512) as llm:
            chunks = []
            async for chunk in llm.stream("hello", LONG, request_id="mine"):
                chunks.append(chunk)
                if len(chunks) == 3:
                    assert llm.abort("mine")
            assert chunks[-1]["finish_reason"] == "abort"
            assert 3 <= len(chunks[-1]["output"]["token_ids"]) < 400
            assert not llm.abort("mine")
            assert free_pages(llm.llm) == 512

    asyncio.run(main())


def test_a_cancelled_task_gives_its_pages_back(tiny: Path) -> None:
    async def main() -> None:
        async with AsyncLLM(str(tiny), num_page_override=512) as llm:
            started = asyncio.Event()

            async def read() -> None:
                async for _ in llm.stream("hello", LONG):
                    started.set()

            task = asyncio.create_task(read())
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert free_pages(llm.llm) == 512
            assert llm.llm.stats()["prompts"] == 0

    asyncio.run(main())


def test_an_abort_before_submission_is_not_lost(tiny: Path) -> None:
    async def main() -> None:
        async with AsyncLLM(str(tiny), num_page_override=512) as llm:
            task = asyncio.create_task(llm.generate("hello", LONG, request_id="mine"))
            await asyncio.sleep(0)  # it is being tokenized in a thread now
            assert llm.abort("mine")
            output = await task
            assert output["finish_reason"] == "abort"
            assert len(output["token_ids"]) < 400

    asyncio.run(main())


def test_closing_a_stream_frees_its_id_at_once(tiny: Path) -> None:
    async def main() -> None:
        async with AsyncLLM(str(tiny), num_page_override=512) as llm:
            stream = llm.stream("hello", LONG, request_id=1)
            await anext(stream)
            await stream.aclose()
            assert not llm.abort(1)
            assert free_pages(llm.llm) == 512

    asyncio.run(main())


def test_an_id_in_use_is_refused(tiny: Path) -> None:
    async def main() -> None:
        async with AsyncLLM(str(tiny), num_page_override=512) as llm:
            stream = llm.stream("hello", LONG, request_id=1)
            await anext(stream)
            with pytest.raises(ValueError, match="request_id 1 is in use"):
                await llm.generate("other", SHORT, request_id=1)
            await stream.aclose()

    asyncio.run(main())


def test_bad_input_is_a_value_error(tiny: Path) -> None:
    async def main() -> None:
        async with AsyncLLM(str(tiny), num_page_override=512) as llm:
            with pytest.raises(ValueError, match="empty prompt"):
                await llm.generate("")
            assert (await llm.generate("ok", SHORT))["finish_reason"] == "length"

    asyncio.run(main())

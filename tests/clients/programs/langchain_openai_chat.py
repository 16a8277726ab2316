"""LangChain's ChatOpenAI."""

from __future__ import annotations

import asyncio

from checks import MODEL, QUESTION, check, main
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI


def model(url: str, **options) -> ChatOpenAI:
    options = {"temperature": 0, "max_tokens": 16, "max_retries": 0, **options}
    return ChatOpenAI(model=MODEL, base_url=f"{url}/v1", api_key="x", **options)


@check
def invoke_tells_text_reason_and_usage(url: str) -> None:
    answer = model(url).invoke(QUESTION)
    assert "Paris" in answer.content
    assert answer.response_metadata["finish_reason"] in ("stop", "length")
    assert answer.usage_metadata["output_tokens"] > 0
    assert answer.usage_metadata["input_token_details"]["cache_read"] >= 0


@check
def a_stream_adds_up_to_the_same_message(url: str) -> None:
    whole = model(url).invoke(QUESTION)
    chunks = list(model(url, stream_usage=True).stream(QUESTION))
    joined = chunks[0]
    for chunk in chunks[1:]:
        joined += chunk
    assert joined.content == whole.content
    assert joined.usage_metadata["output_tokens"] == whole.usage_metadata["output_tokens"]
    assert joined.response_metadata["finish_reason"] == whole.response_metadata["finish_reason"]
    assert not joined.tool_calls


@check
def a_conversation_with_all_roles_is_answered(url: str) -> None:
    messages = [SystemMessage("Be brief."), HumanMessage("Hello"), AIMessage("Hello!"), HumanMessage(QUESTION)]
    assert model(url).invoke(messages).content


@check
def content_in_parts_is_read(url: str) -> None:
    parts = HumanMessage([{"type": "text", "text": "What is the capital "}, {"type": "text", "text": "of France?"}])
    assert model(url).invoke([parts]).content == model(url).invoke(QUESTION).content


@check
def batches_and_async_streams_run(url: str) -> None:
    assert all(answer.content for answer in model(url).batch([f"Say {number}." for number in range(4)]))

    async def stream() -> str:
        return "".join([chunk.content async for chunk in model(url).astream(QUESTION)])

    assert "Paris" in asyncio.run(stream())


@check
def stop_and_logprobs_come_through(url: str) -> None:
    answer = model(url, stop=["Paris"], logprobs=True, top_logprobs=1).invoke(QUESTION)
    assert "Paris" not in answer.content
    assert answer.response_metadata["finish_reason"] == "stop"
    assert answer.response_metadata["logprobs"]["content"]


if __name__ == "__main__":
    main()

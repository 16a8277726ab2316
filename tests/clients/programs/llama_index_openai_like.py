"""LlamaIndex's OpenAILike, for chats and for plain texts."""

from __future__ import annotations

import asyncio

from checks import MODEL, QUESTION, check, main
from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike


def model(url: str, *, is_chat_model: bool) -> OpenAILike:
    return OpenAILike(
        model=MODEL,
        api_base=f"{url}/v1",
        api_key="x",
        is_chat_model=is_chat_model,
        max_retries=0,
        max_tokens=16,
        temperature=0,
        context_window=8192,
    )


@check
def a_chat_says_the_same_in_a_stream(url: str) -> None:
    messages = [ChatMessage(role="system", content="Be brief."), ChatMessage(role="user", content=QUESTION)]
    whole = model(url, is_chat_model=True).chat(messages)
    chunks = list(model(url, is_chat_model=True).stream_chat(messages))
    assert chunks[-1].message.content == whole.message.content
    assert "".join(chunk.delta or "" for chunk in chunks) == whole.message.content
    assert whole.raw.usage.prompt_tokens > 0


@check
def a_plain_text_is_continued_the_same_in_a_stream(url: str) -> None:
    whole = model(url, is_chat_model=False).complete("The capital of France is")
    chunks = list(model(url, is_chat_model=False).stream_complete("The capital of France is"))
    assert "Paris" in whole.text
    assert chunks[-1].text == whole.text


@check
def async_calls_run(url: str) -> None:
    async def both() -> list:
        llm = model(url, is_chat_model=True)
        return await asyncio.gather(*(llm.acomplete(f"Say {number}.") for number in range(2)))

    assert all(answer.text for answer in asyncio.run(both()))


if __name__ == "__main__":
    main()

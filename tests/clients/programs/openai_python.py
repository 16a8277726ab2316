"""openai-python: sync, async, streaming, errors, and its own models of what an answer holds."""

from __future__ import annotations

import asyncio

import openai
from checks import MODEL, QUESTION, check, main
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

MESSAGES = [{"role": "user", "content": QUESTION}]


def client(url: str, **options) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0, timeout=60, **options)


def chat(url: str, **fields):
    fields = {"model": MODEL, "messages": MESSAGES, "max_tokens": 16, "temperature": 0, **fields}
    return client(url).chat.completions.create(**fields)


def refused(url: str, **fields) -> openai.APIStatusError:
    try:
        chat(url, **fields)
    except openai.APIStatusError as error:
        return error
    raise AssertionError(f"{fields} were accepted")


@check
def models_are_listed_and_found(url: str) -> None:
    models = client(url).models.list().data
    assert [model.id for model in models] == [MODEL], models
    assert client(url).models.retrieve(MODEL).object == "model"


@check
def an_answer_is_all_that_the_types_say(url: str) -> None:
    raw = client(url).chat.completions.with_raw_response.create(
        model=MODEL, messages=MESSAGES, max_tokens=16, temperature=0, logprobs=True, top_logprobs=2
    )
    answer = ChatCompletion.model_validate_json(raw.text, strict=True)
    assert "Paris" in answer.choices[0].message.content
    assert answer.choices[0].finish_reason in ("stop", "length")
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.prompt_tokens_details.cached_tokens >= 0
    assert all(len(entry.top_logprobs) == 2 for entry in answer.choices[0].logprobs.content)


@check
def a_stream_says_the_same_as_the_answer(url: str) -> None:
    whole = chat(url)
    chunks = list(chat(url, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content, (text, whole)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    reasons = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
    assert reasons == [None] * (len(reasons) - 1) + [whole.choices[0].finish_reason]


@check
def every_chunk_is_what_the_types_say(url: str) -> None:
    with client(url).chat.completions.with_streaming_response.create(
        model=MODEL, messages=MESSAGES, max_tokens=8, stream=True, n=2, seed=1, temperature=1
    ) as response:
        lines = [line for line in response.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    chunks = [ChatCompletionChunk.model_validate_json(line[5:], strict=True) for line in lines[:-1]]
    assert {choice.index for chunk in chunks for choice in chunk.choices} == {0, 1}


@check
def completions_keep_the_order_of_prompts_and_choices(url: str) -> None:
    raw = client(url).completions.with_raw_response.create(
        model=MODEL, prompt=["The capital of France is", "One, two, three,"], n=2, max_tokens=5, temperature=0
    )
    answer = Completion.model_validate_json(raw.text, strict=True)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert "Paris" in answer.choices[0].text
    assert "four" in answer.choices[2].text
    assert answer.usage.completion_tokens == 20


@check
def echo_with_logprobs_has_an_entry_for_every_token(url: str) -> None:
    for _ in range(2):  # the second time the prompt is cached
        choice = (
            client(url)
            .completions.create(model=MODEL, prompt=[504, 3575, 282], max_tokens=1, echo=True, logprobs=1)
            .choices[0]
        )
        assert len(choice.logprobs.token_logprobs) == len(choice.logprobs.tokens) == 4
        assert choice.logprobs.token_logprobs[0] is None
        assert "".join(choice.logprobs.tokens) == choice.text


@check
def errors_are_told_with_param_and_code(url: str) -> None:
    error = refused(url, temperature=-1)
    assert isinstance(error, openai.BadRequestError)
    assert error.param == "temperature", error.body
    assert "temperature" in error.message, error.message
    error = refused(url, model="nope")
    assert isinstance(error, openai.NotFoundError)
    assert error.code == "model_not_found", error.body
    error = refused(url, messages=[{"role": "user", "content": "word " * 20_000}])
    assert isinstance(error, openai.BadRequestError)
    assert error.code == "context_length_exceeded", error.body


@check
def what_is_not_supported_is_refused_by_name(url: str) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    assert refused(url, tools=[tool]).param == "tools"
    assert refused(url, response_format={"type": "json_object"}).param.startswith("response_format")
    assert refused(url, stream=True, audio={"voice": "alloy", "format": "wav"}).param == "audio"


@check
def nulls_and_unknown_fields_do_no_harm(url: str) -> None:
    assert chat(url, stop=None, logit_bias=None, user=None, tools=None, extra_body={"foo": {"bar": 1}}).choices


@check
def a_reader_that_leaves_disturbs_nobody(url: str) -> None:
    with chat(url, stream=True, max_tokens=2000, extra_body={"ignore_eos": True}) as stream:
        for number, _ in enumerate(stream):
            if number == 3:
                break
    assert "Paris" in chat(url).choices[0].message.content


@check
def many_async_streams_run_side_by_side(url: str) -> None:
    async def one(api: openai.AsyncOpenAI, number: int) -> str:
        stream = await api.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": f"Count from {number}."}], max_tokens=8, stream=True
        )
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])

    async def all_of_them() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0) as api:
            return await asyncio.gather(*(one(api, number) for number in range(8)))

    assert all(asyncio.run(all_of_them()))


if __name__ == "__main__":
    main()

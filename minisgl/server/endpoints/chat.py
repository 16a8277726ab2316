"""POST /v1/chat/completions."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request

from minisgl.llm.client import Prepared
from minisgl.server.endpoints.common import (
    check_model,
    check_num_logprobs,
    check_priority,
    let_in,
    make_heading,
    plain_messages_of,
    read_body,
    refused,
    run,
)
from minisgl.server.engine_client import EngineClient
from minisgl.server.schema.chat import ChatRequest
from minisgl.server.schema.template import template_kwargs
from minisgl.server.serving import Generation
from minisgl.server.state import ServerState
from minisgl.server.stream.chat import ChatAnswer


async def chat_completions(request: Request) -> Generation:
    """The model's next message in a conversation."""
    state, engine = let_in(request)
    body = await read_body(request, ChatRequest)
    check_model(state, body.model)
    heading = make_heading(request, "chatcmpl")
    prepare = partial(_prepare, state, engine, body)
    return run(
        request,
        heading,
        "/v1/chat/completions",
        body,
        prepare,
        lambda prepared: ChatAnswer(heading, body, prepared, engine.tokenizer),
    )


async def _prepare(state: ServerState, engine: EngineClient, body: ChatRequest) -> list[Prepared]:
    params = body.params(state.sampling_defaults, engine.limits.max_seq_len)
    template = template_kwargs(body, engine.tokenizer)
    salt, priority = body.cache_salt or "", check_priority(engine, body.priority)
    messages = await plain_messages_of(body.messages)
    try:
        prepared = await engine.prepare_chat(messages, params, template, cache_salt=salt, priority=priority)
    except ValueError as error:
        raise refused(error, "messages") from None
    check_num_logprobs(engine, [prepared], "top_logprobs")
    return [prepared]

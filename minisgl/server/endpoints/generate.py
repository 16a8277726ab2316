"""POST /generate, in SGLang's form."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request

from minisgl.llm.client import Prepared
from minisgl.server.endpoints.common import (
    check_num_logprobs,
    check_priority,
    let_in,
    make_heading,
    prepare_prompts,
    read_body,
    run,
)
from minisgl.server.engine_client import EngineClient
from minisgl.server.schema.generate import GenerateRequest
from minisgl.server.serving import Generation
from minisgl.server.state import ServerState
from minisgl.server.stream.generate import GenerateAnswer


async def generate(request: Request) -> Generation:
    """How prompts go on; a stream repeats the text so far in every event."""
    state, engine = let_in(request)
    body = await read_body(request, GenerateRequest)
    heading = make_heading(request, "gen")
    prepare = partial(_prepare, state, engine, body)
    return run(
        request,
        heading,
        "/generate",
        body,
        prepare,
        lambda prepared: GenerateAnswer(heading, body, prepared, engine.tokenizer),
        body.names,
    )


async def _prepare(state: ServerState, engine: EngineClient, body: GenerateRequest) -> list[Prepared]:
    field = "text" if body.text is not None else "input_ids"
    salt, priority = body.cache_salt or "", check_priority(engine, body.priority)
    params = body.params(state.sampling_defaults)
    prepared = await prepare_prompts(engine, field, body.prompts(), params, salt, priority, body.prefix)
    check_num_logprobs(engine, prepared, "top_logprobs_num")
    return prepared

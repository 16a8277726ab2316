"""POST /v1/completions."""

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
    prepare_prompts,
    read_body,
    run,
)
from minisgl.server.engine_client import EngineClient
from minisgl.server.schema.completions import CompletionRequest
from minisgl.server.serving import Generation
from minisgl.server.state import ServerState
from minisgl.server.stream.completions import CompletionAnswer


async def completions(request: Request) -> Generation:
    """How prompts go on."""
    state, engine = let_in(request)
    body = await read_body(request, CompletionRequest)
    check_model(state, body.model)
    heading = make_heading(request, "cmpl")
    prepare = partial(_prepare, state, engine, body)
    return run(
        request,
        heading,
        "/v1/completions",
        body,
        prepare,
        lambda prepared: CompletionAnswer(heading, body, prepared, engine.tokenizer),
    )


async def _prepare(state: ServerState, engine: EngineClient, body: CompletionRequest) -> list[Prepared]:
    prompts, params = body.prompts(), body.params(state.sampling_defaults)
    salt, priority = body.cache_salt or "", check_priority(engine, body.priority)
    prepared = await prepare_prompts(engine, "prompt", prompts, [params] * len(prompts), salt, priority)
    check_num_logprobs(engine, prepared, "logprobs")
    return prepared

"""GET /get_server_info, /get_model_info, /version and /health_generate."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

import minisgl
from minisgl.core import SamplingParams
from minisgl.message import EngineInfo
from minisgl.server.endpoints.common import ANSWER_TIMEOUT_S, engine_answers, json_response, state_of
from minisgl.server.engine_client import EngineClient
from minisgl.server.errors import ApiError
from minisgl.server.schema.info import Alive, ModelInfo, ServerInfo, Version

GENERATE_TIMEOUT_S = 20.0


async def get_server_info(request: Request) -> Response:
    """What runs here, with counters and sizes of scheduler and cache as of now."""
    state = state_of(request)
    async with engine_answers(ANSWER_TIMEOUT_S):
        stats = await state.ready_engine().stats()
    info = ServerInfo(
        version=minisgl.__version__,
        model_path=state.model_name,
        max_total_num_tokens=state.ready_engine().limits.pool_len,
        engine=None if state.info is None else _shown(state.info, state.model_name),
        internal_states=[asdict(stats)],
    )
    return json_response(info)


def _shown(info: EngineInfo, model_name: str) -> dict[str, Any]:
    """Without what is about this machine, as where files are, and by the name that the model is served under."""
    return {key: value for key, value in asdict(info).items() if key not in ("path", "pid")} | {"model": model_name}


async def get_model_info(request: Request) -> Response:
    """The model, in SGLang's words."""
    state, limits = state_of(request), state_of(request).ready_engine().limits
    name = state.model_name
    return json_response(
        ModelInfo(
            model_path=name, tokenizer_path=name, max_model_len=limits.max_model_len, vocab_size=limits.vocab_size
        )
    )


async def version(request: Request) -> Response:
    """Of minisgl."""
    return json_response(Version(minisgl.__version__))


async def health_generate(request: Request) -> Response:
    """200 when the engine generates a token within 20 seconds, else 503. It waits behind what runs, not at the gate."""
    engine = state_of(request).ready_engine()
    async with engine_answers(GENERATE_TIMEOUT_S):
        reason = await _generate_one(engine)
    if reason not in ("stop", "length"):
        raise ApiError(503, "the engine generates nothing", code="engine_failing")
    return json_response(Alive())


async def _generate_one(engine: EngineClient) -> str | None:
    """Why it ended."""
    reason: str | None = None
    prepared = await engine.prepare([0], SamplingParams(max_tokens=1))
    async with aclosing(engine.run([prepared])) as steps:
        async for deltas in steps:
            reason = deltas[-1]["finish_reason"]
    return reason

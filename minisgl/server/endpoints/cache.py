"""POST /cache/probe, /cache/explain, /cache/purge and /flush_cache."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from minisgl.llm.text_threads import in_thread
from minisgl.server.endpoints.common import (
    ANSWER_TIMEOUT_S,
    check_model,
    encoded_response,
    engine_answers,
    json_response,
    plain_messages_of,
    read_body,
    refuse_foreign_page,
    refused,
    state_of,
)
from minisgl.server.errors import ApiError
from minisgl.server.explaining import told_in_full
from minisgl.server.schema.cache import CachedText, Probed, ProbeRequest, Purged, PurgeRequest
from minisgl.server.schema.info import Flushed
from minisgl.server.schema.template import template_kwargs
from minisgl.server.stream.events import encode
from minisgl.tokenizer import Tokenizer

T = TypeVar("T", bound=CachedText)
AnswerT = TypeVar("AnswerT")


async def probe_cache(request: Request) -> Response:
    """How much of a prompt a request would find cached. Nothing runs, and nothing is kept longer for it."""
    engine = state_of(request).ready_engine()
    return json_response(Probed(*await ask_about_prompt(request, engine.probe, engine.probe_chat)))


async def explain_cache(request: Request) -> Response:
    """Why a request would find a prompt cached, or not, in the same way. 404 when --no-explain."""
    engine = state_of(request).ready_engine()
    if not engine.limits.explains:
        raise ApiError(404, "this server was started with --no-explain", code="not_found")
    explained = await ask_about_prompt(request, engine.explain, engine.explain_chat)
    size, tokenizer = len(explained.input_ids), engine.tokenizer
    return encoded_response(await in_thread(size, lambda: encode(told_in_full(explained, tokenizer))))


async def purge_cache(request: Request) -> Response:
    """No later request uses what is cached now under one salt, or begins with one prefix there. Texts are forgotten."""
    refuse_foreign_page(request)
    engine = state_of(request).ready_engine()
    body = await _read(request, PurgeRequest)
    field = next(iter(body.given()), None)
    salt = None if body.all_salts else body.cache_salt or ""
    template, messages = _prefix_template(body, engine.tokenizer), await plain_messages_of(body.messages or ())
    try:
        async with engine_answers(ANSWER_TIMEOUT_S):
            if messages:
                freed = await engine.purge_chat(messages, template, cache_salt=salt)
            else:
                freed = await engine.purge_cache(field and getattr(body, field), cache_salt=salt)
    except ValueError as error:
        raise refused(error, field or "cache_salt") from None
    state_of(request).book.forget_texts()
    return json_response(Purged(freed))


async def flush_cache(request: Request) -> Response:
    """Nothing that is cached now is used for a later request; those that run keep what they have. Texts are forgotten.

    503 when the engine does not answer within 10 seconds; it may do it later.
    """
    refuse_foreign_page(request)
    async with engine_answers(ANSWER_TIMEOUT_S):
        await state_of(request).ready_engine().flush_cache()
    state_of(request).book.forget_texts()
    return json_response(Flushed())


async def ask_about_prompt(
    request: Request, of_prompt: Callable[..., Awaitable[AnswerT]], of_chat: Callable[..., Awaitable[AnswerT]]
) -> AnswerT:
    """About the prompt in the body."""
    body = await _read(request, ProbeRequest)
    (field,), salt = body.given(), body.cache_salt or ""
    tokenizer = state_of(request).ready_engine().tokenizer
    template, messages = template_kwargs(body, tokenizer), await plain_messages_of(body.messages or ())
    try:
        async with engine_answers(ANSWER_TIMEOUT_S):
            if messages:
                return await of_chat(messages, template, cache_salt=salt)
            return await of_prompt(getattr(body, field), cache_salt=salt)
    except ValueError as error:
        raise refused(error, field) from None


async def _read(request: Request, body_type: type[T]) -> T:
    body = await read_body(request, body_type)
    check_model(state_of(request), body.model)
    return body


def _prefix_template(body: PurgeRequest, tokenizer: Tokenizer) -> dict[str, Any]:
    """Whatever comes after the messages, an answer or another question."""
    return template_kwargs(body, tokenizer) | ({} if body.add_generation_prompt else {"add_generation_prompt": False})

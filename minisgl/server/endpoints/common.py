"""What several endpoints do with a request before it is a job."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, ParamSpec, Protocol, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from minisgl.core import ContextLengthError, FieldError, Limits, SamplingParams
from minisgl.core.sampling_params import MAX_LOGPROBS
from minisgl.llm import EngineDied
from minisgl.llm.client import Prepared
from minisgl.llm.encoder import Prompt
from minisgl.llm.text_threads import LONG, in_thread
from minisgl.server.engine_client import EngineClient
from minisgl.server.errors import MAX_MESSAGE_LEN, ApiError
from minisgl.server.records import RequestBook
from minisgl.server.schema.api import Query
from minisgl.server.schema.decoding import Body, decode
from minisgl.server.schema.messages import ChatMessage, num_objects, plain_messages
from minisgl.server.schema.sampling import wrong_field
from minisgl.server.serving import Generation, Job
from minisgl.server.state import ServerState
from minisgl.server.stream.answer import Answer, Heading
from minisgl.server.stream.events import encode
from minisgl.utils.json_outline import CHEAP, JsonSizeError, Outline, is_cheap
from minisgl.utils.lone_thread import LoneThread

MAX_LOGPROBS_IN_ALL = 2**20  # of one answer: some hundred MB, in JSON and before
MANY_OBJECTS = 4096  # in messages: some milliseconds' work
ANSWER_TIMEOUT_S = 10.0  # questions are answered between two steps, which may take seconds on a CPU
BODIES = LoneThread("minisgl-bodies")
BODY_REST = 2.0  # times as long as a large body took, the next one is not looked at
P = ParamSpec("P")
T = TypeVar("T", bound=Body)


class GeneratingBody(Protocol):
    """What the bodies of all endpoints that generate say alike."""

    @property
    def num_sequences(self) -> int: ...

    @property
    def stream(self) -> bool | None: ...

    @property
    def explain(self) -> bool | None: ...


def state_of(request: Request) -> ServerState:
    state: ServerState = request.app.state.server
    return state


def ready_state(request: Request) -> ServerState:
    """With an engine. ApiError 503 while there is none."""
    state = state_of(request)
    state.ready_engine()
    return state


def let_in(request: Request) -> tuple[ServerState, EngineClient]:
    """Before anything of a body is read: ApiError when there is no engine, or no room for even one sequence."""
    state = state_of(request)
    engine = state.ready_engine()
    state.gate.check(1)
    return state, engine


def json_response(data: Any, status: int = 200) -> Response:
    return encoded_response(encode(data), status)


def encoded_response(data: bytes, status: int = 200) -> Response:
    """data: in JSON already, as what is large is made of it beside the event loop."""
    return Response(data, status, media_type="application/json")


@asynccontextmanager
async def engine_answers(seconds: float) -> AsyncIterator[None]:
    """What is asked of the engine in the block gets an answer in that time, or it is a 503."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except EngineDied:
        raise ApiError(503, "the engine has died", code="engine_dead") from None
    except TimeoutError:
        raise ApiError(503, f"no answer from the engine within {seconds:g} s", code="engine_slow") from None


async def read_body(request: Request, body_type: type[T]) -> T:
    """The body, checked. ApiError 400 for what is wrong with it, and for one that does not say that it is JSON; 415 for
    a packed one.

    A web page of another origin may send anything to a server on its reader's machine, but not with that content type.
    What takes the decoder long is counted and decoded beside the event loop, one body at a time.
    """
    _check_headers(request)
    state = state_of(request)
    async with AsyncExitStack() as room:
        pieces, num_bytes = [], 0
        try:
            async for piece in request.stream():
                if num_bytes <= CHEAP < num_bytes + len(piece):
                    await room.enter_async_context(state.bodies.hold(_announced(request, state)))
                pieces.append(piece)
                num_bytes += len(piece)
        except ClientDisconnect:
            raise ApiError(400, "the body did not come to its end") from None
        if num_bytes <= CHEAP and is_cheap(raw := b"".join(pieces)):
            return decode(raw, body_type)
        limits = None if state.engine is None else state.engine.limits
        return await asyncio.get_running_loop().run_in_executor(
            BODIES, _in_turn, _decode_large, pieces, body_type, limits
        )


def _check_headers(request: Request) -> None:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json" and not media_type.endswith("+json"):
        raise ApiError(400, f"the body must be sent as Content-Type: application/json, not {media_type!r}")
    codings = ",".join(request.headers.getlist("content-encoding"))
    if any(coding.strip().lower() not in ("", "identity") for coding in codings.split(",")):
        raise ApiError(
            415,
            f"Content-Encoding: {codings} is not supported: send the body as it is",
            code="unsupported_content_encoding",
            headers={"Accept-Encoding": "identity"},
        )


def _announced(request: Request, state: ServerState) -> int:
    """How large a body will be, or at most; `BodyLimit` holds it to that."""
    return int(request.headers.get("content-length", state.config.max_body_bytes))


def _in_turn(decode: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Decode, then let the thread rest, so that the processor is free for other work."""
    began = time.perf_counter()
    try:
        return decode(*args, **kwargs)
    finally:
        BODIES.submit(time.sleep, BODY_REST * (time.perf_counter() - began))


def _decode_large(pieces: list[bytes], body_type: type[T], limits: Limits | None) -> T:
    """Decode a large body. Refuses what would take the decoder long, and more token ids than the context holds."""
    raw = b"".join(pieces)
    pieces.clear()
    outline = Outline.of(raw)
    if limits is not None:
        try:
            body_type.check_num_ids(outline.field, outline.longest, limits)
        except ContextLengthError as error:
            raise refused(error, outline.field) from None
    try:
        outline.check()
    except JsonSizeError as error:
        where = f"{error.field}: " if error.field else ""
        message, param = f"{where}the body has {error}", error.field or None
        raise ApiError(400, message, param=param, code="request_too_large") from None
    return decode(raw, body_type)


def read_query(request: Request, query: Query) -> int | None:
    """What the address says of it, or its default. ApiError 400 for what is no number in its range, or not one."""
    given = request.query_params.getlist(query.name)
    if not given:
        return query.default
    (text, *more), most = given, query.maximum
    if more or not (text.isascii() and text.isdigit() and len(text) < 20) or int(text) < query.minimum:
        raise ApiError(400, f"{query.name}: Expected one `int` >= {query.minimum}", param=query.name)
    if most is not None and int(text) > most:
        raise ApiError(400, f"{query.name}: Expected `int` <= {most}", param=query.name)
    return int(text)


def refuse_foreign_page(request: Request) -> None:
    """ApiError 403 for what a browser sends for a page, unless --cors-origin names it. Only browsers send an Origin.

    A page may send a POST without a body anywhere without asking first, so also to a server on its reader's machine.
    """
    origin, allowed = request.headers.get("origin"), state_of(request).config.cors_origins
    if origin is not None and origin not in allowed and "*" not in allowed:
        raise ApiError(403, "pages of this origin may not control the server; see --cors-origin", code="foreign_origin")


def check_model(state: ServerState, model: str | None) -> None:
    """ApiError 404 for a model that is not served; none, or an empty name, is the one that there is."""
    if model and model != state.model_name:
        message = f"the model {model[:MAX_MESSAGE_LEN]!r} does not exist; this server has {state.model_name!r}"
        raise ApiError(404, message, param="model", code="model_not_found")


def check_priority(engine: EngineClient, priority: int | None) -> int:
    """The priority, 0 where none is given. ApiError 400 for another one where it would change nothing."""
    try:
        engine.limits.check_priority(priority or 0)
    except FieldError as error:
        raise ApiError(400, str(error), param=error.field, code="unsupported_parameter") from None
    return priority or 0


def request_ids(book: RequestBook) -> dict[int, str]:
    """Of those that are open, by the uids of their sequences."""
    return {uid: record.request_id for record in book for uid in record.uids}


def request_id_of(request: Request) -> str:
    request_id: str = request.state.request_id
    return request_id


def make_heading(request: Request, prefix: str) -> Heading:
    """For one answer; its id is the request's, with OpenAI's prefix."""
    unique = request_id_of(request).partition("-")[2]
    return Heading(f"{prefix}-{unique}", int(time.time()), state_of(request).model_name)


def run(
    request: Request,
    heading: Heading,
    endpoint: str,
    body: GeneratingBody,
    prepare: Callable[[], Awaitable[list[Prepared]]],
    answer: Callable[[list[Prepared]], Answer],
    names: Sequence[str] = (),
) -> Generation:
    """The response that runs what a body asks for. names: the client's own for it; for the others see `Job`."""
    request_id = request_id_of(request)
    job = Job(
        endpoint=endpoint,
        request_id=request_id,
        names=(request_id, heading.id, *names),
        num_sequences=body.num_sequences,
        stream=bool(body.stream),
        explain=bool(body.explain),
        prepare=partial(_prepare_early, prepare) if body.explain and body.stream else prepare,
        answer=answer,
    )
    return Generation(state_of(request), job)


async def _prepare_early(prepare: Callable[[], Awaitable[list[Prepared]]]) -> list[Prepared]:
    """To be explained before they are computed; but a prompt's logprobs come first of all."""
    return [replace(prompt, explain=prompt.params.prompt_logprobs is None) for prompt in await prepare()]


async def plain_messages_of(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """As `plain_messages`, but of many beside the event loop."""
    if num_objects(messages) < MANY_OBJECTS:
        return plain_messages(messages)
    return await in_thread(LONG, plain_messages, messages)


async def prepare_prompts(
    engine: EngineClient,
    field: str,
    prompts: Sequence[Prompt],
    params: Sequence[SamplingParams],
    cache_salt: str,
    priority: int,
    prefix: Callable[[int], str] = lambda index: "",
) -> list[Prepared]:
    """All of them, or ApiError 400 for the first that can never run.

    field: where they came from. prefix: of the names of the fields in a prompt's params.
    """
    prepared = []
    for i, (prompt, each) in enumerate(zip(prompts, params, strict=True)):
        try:
            prepared.append(await engine.prepare(prompt, each, cache_salt=cache_salt, priority=priority))
        except ValueError as error:
            raise refused(error, field if len(prompts) == 1 else f"{field}[{i}]", prefix(i)) from None
    return prepared


def check_num_logprobs(engine: EngineClient, prepared: Sequence[Prepared], field: str) -> None:
    """ApiError 400 for more logprobs than an answer may have. field: which says how many of the best there are.

    One sequence as long as the context may have all.
    """
    limits = engine.limits
    num = sum(_num_logprobs(limits, prompt) for prompt in prepared)
    allowed = max(MAX_LOGPROBS_IN_ALL, limits.max_seq_len * (1 + MAX_LOGPROBS))
    if num > allowed:
        raise ApiError(
            400,
            f"{field}: up to {num} logprobs in one answer are over the limit of {allowed}: ask for fewer sequences,"
            " tokens, or best tokens",
            param=field,
        )


def _num_logprobs(limits: Limits, prompt: Prepared) -> int:
    """At most, in the answer to all its choices."""
    params, num_prompt = prompt.params, len(prompt.input_ids)
    num_new = limits.max_device_len(num_prompt, params) - num_prompt
    of_new = 0 if params.logprobs is None else num_new * (1 + params.logprobs)
    of_prompt = 0 if params.prompt_logprobs is None else num_prompt * (1 + params.prompt_logprobs)
    return params.n * (of_new + of_prompt)


def refused(error: ValueError, field: str, prefix: str = "") -> ApiError:
    """ApiError 400 for what the engine refuses about `field`, or about another that it names; its name has a prefix."""
    if isinstance(error, ContextLengthError):
        return ApiError(400, f"{field}: {error}", param=field, code="context_length_exceeded")
    if isinstance(error, FieldError):
        return wrong_field(error, prefix)
    return ApiError(400, f"{field}: {error}", param=field)

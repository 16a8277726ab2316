"""POST /tokenize and /detokenize."""

from __future__ import annotations

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from minisgl.core import Limits, SamplingParams
from minisgl.llm.text_threads import in_thread
from minisgl.server.endpoints.common import (
    check_model,
    encoded_response,
    plain_messages_of,
    read_body,
    refused,
    state_of,
)
from minisgl.server.engine_client import EngineClient
from minisgl.server.errors import ApiError
from minisgl.server.schema.info import Text, Tokens
from minisgl.server.schema.template import template_kwargs
from minisgl.server.schema.tokens import DetokenizeRequest, TokenizeRequest
from minisgl.server.stream.events import encode
from minisgl.server.stream.logprobs import token_name
from minisgl.tokenizer import TokenBytes, Tokenizer
from minisgl.utils.math import num_bytes

MAX_BYTES = 2**20  # of a text: tokenizing takes up to 300 bytes of memory for each
BYTES_A_TOKEN = 8  # about twice what there are


def max_bytes(limits: Limits) -> int:
    """Bytes in UTF-8 of a text that is tokenized, or written, at a time."""
    return max(MAX_BYTES, BYTES_A_TOKEN * limits.max_seq_len)


async def tokenize(request: Request) -> Response:
    """The token ids of a text or a conversation."""
    engine = state_of(request).ready_engine()
    body = await read_body(request, TokenizeRequest)
    check_model(state_of(request), body.model)
    if body.messages is None:
        return encoded_response(await _tokenized_text(engine, body))
    ids = await _chat_ids(engine, body)
    return encoded_response(await in_thread(len(ids), _tokenized, engine, body, ids))


async def detokenize(request: Request) -> Response:
    """The text of token ids."""
    engine = state_of(request).ready_engine()
    body = await read_body(request, DetokenizeRequest)
    check_model(state_of(request), body.model)
    body.check_num_ids("tokens", len(body.tokens), engine.limits)
    skip_special_tokens = bool(body.skip_special_tokens)
    return encoded_response(await in_thread(len(body.tokens), _text_of, engine, body.tokens, skip_special_tokens))


def _text_of(engine: EngineClient, ids: list[int], skip_special_tokens: bool) -> bytes:
    """By a batch of one: it lets go of the interpreter lock, which `decode` keeps for seconds if they are many."""
    _check_vocabulary(ids, max(engine.limits.vocab_size, engine.tokenizer.vocab_size))
    _check_text_len(ids, engine)
    texts: list[str] = engine.tokenizer.backend.decode_batch([ids], skip_special_tokens=skip_special_tokens)
    return encode(Text(texts[0], texts[0]))


def _check_text_len(ids: list[int], engine: EngineClient) -> None:
    """ApiError 400, before it is made, for a longer text than /tokenize takes."""
    allowed, tokenizer = max_bytes(engine.limits), engine.tokenizer
    if len(ids) * tokenizer.longest_token <= allowed:
        return
    bytes_of = TokenBytes(tokenizer)
    different, counts = np.unique(np.asarray(ids), return_counts=True)
    num = sum(
        len(bytes_of(token_id)) * count for token_id, count in zip(different.tolist(), counts.tolist(), strict=True)
    )
    if num > allowed:
        message = f"tokens: a text of {num} bytes; at most {allowed} are written at a time"
        raise ApiError(400, message, param="tokens")


def _check_vocabulary(ids: list[int], vocab_size: int) -> None:
    """ApiError 400 for an id that no tokenizer and no model gives: it would have no text."""
    highest = max(ids, default=0)
    if highest >= vocab_size:
        name = f"tokens[{ids.index(highest)}]"
        message = f"{name}: token id {highest} is outside the vocabulary of {vocab_size} tokens"
        raise ApiError(400, message, param=name)


async def _tokenized_text(engine: EngineClient, body: TokenizeRequest) -> bytes:
    """Longer than the context, if need be: who asks may want to cut it. ApiError 400 beyond all measure."""
    text = body.prompt
    assert text is not None, "neither prompt nor messages"
    allowed, size = max_bytes(engine.limits), num_bytes(text)
    if size > allowed:
        raise ApiError(400, f"prompt: {size} bytes of UTF-8; at most {allowed} are tokenized at a time", param="prompt")
    special = body.add_special_tokens is None or body.add_special_tokens
    encode_text = engine.tokenizer.encode if special else engine.tokenizer.encode_rendered
    return await in_thread(size, lambda: _tokenized(engine, body, encode_text(text).tolist()))


def _tokenized(engine: EngineClient, body: TokenizeRequest, ids: list[int]) -> bytes:
    names = _names(engine.tokenizer, ids) if body.return_token_strs else None
    return encode(Tokens(ids, len(ids), engine.limits.max_model_len, names))


async def _chat_ids(engine: EngineClient, body: TokenizeRequest) -> list[int]:
    messages = await plain_messages_of(body.messages or ())
    try:
        prepared = await engine.prepare_chat(messages, SamplingParams(), template_kwargs(body, engine.tokenizer))
    except ValueError as error:
        raise refused(error, "messages") from None
    return [int(token_id) for token_id in prepared.input_ids]


def _names(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    bytes_of = TokenBytes(tokenizer)
    return [token_name(bytes_of(token_id)) for token_id in ids]

"""A model behind a running server, ours or another that speaks OpenAI's API."""

from __future__ import annotations

import http.client
import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

from minisgl.cli.api_client import ApiClient, message_of
from minisgl.cli.chat_model import Message, Piece
from minisgl.cli.chat_stats import server_lines
from minisgl.cli.report import Totals
from minisgl.core import SamplingParams

NOT_SENT = {"logprobs", "prompt_logprobs", "n"}  # a chat shows none of them


class RemoteModel:
    """One server. sampling: fields of SamplingParams that differ from their defaults, which a chat has everywhere.

    OSError when it cannot be reached, ValueError when it names no model.
    """

    def __init__(self, url: str, api_key: str | None, sampling: Mapping[str, Any]) -> None:
        self._client = ApiClient(url, api_key)
        defaults = SamplingParams()
        self._fields = {"temperature": defaults.temperature, "max_tokens": defaults.max_tokens}  # not the server's
        self._fields |= {name: value for name, value in sampling.items() if name not in NOT_SENT}
        self.name = self._first_model()

    def reply(self, messages: Sequence[Message]) -> Generator[Piece]:
        """Every piece as it comes. What happens on the way is an error in the last piece; the chat goes on."""
        body = {
            "model": self.name,
            "messages": list(messages),
            "stream": True,
            "stream_options": {"include_usage": True},
            **self._fields,
        }
        connection = self._client.connect()
        try:
            response = self._client.send(connection, "POST", "/v1/chat/completions", body)
            if response.status != 200:
                raise ValueError(message_of(response.read(), response.status))
            yield from _pieces(response)
        except (OSError, http.client.HTTPException) as error:
            yield Piece(error=f"the server: {error or type(error).__name__}")
        finally:
            connection.close()

    def stats(self) -> str:
        """What the server says of itself, a line for each value."""
        try:
            status, body = self._client.answer("GET", "/get_server_info")
            if status != 200:
                return message_of(body, status)
            return "\n".join(server_lines(json.loads(body)))
        except (OSError, ValueError, RecursionError) as error:
            return f"the server does not say: {error}"

    def _first_model(self) -> str:
        status, body = self._client.answer("GET", "/v1/models")
        try:
            return str(json.loads(body)["data"][0]["id"])
        except (ValueError, LookupError, TypeError, RecursionError):
            raise ValueError(f"/v1/models: {message_of(body, status)}") from None


def _pieces(response: http.client.HTTPResponse) -> Iterator[Piece]:
    """The text of each event; then usage, or what the server said went wrong."""
    totals = Totals(num_prompts=1)
    for event in _events(response):
        if error := event.get("error"):
            yield Piece(error=str(error.get("message", error) if isinstance(error, dict) else error))
            return
        _note_usage(totals, event.get("usage") or {})
        for choice in event.get("choices") or ():
            if text := (choice.get("delta") or {}).get("content"):
                yield Piece(text)
    yield Piece(totals=totals)


def _events(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """The objects before [DONE]. HTTPException when it never comes."""
    for line in response:
        data = line[5:].strip() if line.startswith(b"data:") else b""
        if data == b"[DONE]":
            return
        if data:
            yield json.loads(data)
    raise http.client.HTTPException("the reply broke off")


def _note_usage(totals: Totals, usage: Mapping[str, Any]) -> None:
    details = usage.get("prompt_tokens_details") or {}
    totals.prompt_tokens = usage.get("prompt_tokens", totals.prompt_tokens)
    totals.generated_tokens = usage.get("completion_tokens", totals.generated_tokens)
    totals.cached_tokens = details.get("cached_tokens", totals.cached_tokens)

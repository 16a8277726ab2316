"""A running server, asked for JSON."""

from __future__ import annotations

import http.client
import json
import ssl
from typing import Any, TypeVar

import msgspec

from minisgl.cli.address import Address

TIMEOUT_S = 600.0  # of silence: a server computes a long prompt for a while
T = TypeVar("T")


class ApiClient:
    """One connection a question. url: as the user gave it. ValueError for what is no address."""

    def __init__(self, url: str, api_key: str | None) -> None:
        self._address = Address.of(url)
        self._headers = {"Content-Type": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"

    def ask(self, method: str, path: str, answer_type: type[T], body: Any = None) -> T:
        """The answer. ValueError with the server's reason when it refuses, and for an answer that is of another type.

        OSError when it cannot be reached.
        """
        status, raw = self.answer(method, path, body)
        if status != 200:
            asked = "the server" if _words_of(raw) else path.partition("?")[0]
            raise ValueError(f"{asked}: {message_of(raw, status)}")
        return read_answer(path, raw, answer_type)

    def answer(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        """Status and body of the response. OSError when the server cannot be reached."""
        connection = self.connect()
        try:
            response = self.send(connection, method, path, body)
            return response.status, response.read()
        except http.client.HTTPException as error:
            raise self._address.error(OSError(f"{type(error).__name__}: {error}")) from error
        except OSError as error:
            raise self._address.error(error) from error
        finally:
            connection.close()

    def connect(self) -> http.client.HTTPConnection:
        """To be closed by the caller. It connects when something is sent."""
        address = self._address
        if address.is_secure:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(address.host, address.port, timeout=TIMEOUT_S, context=context)
        return http.client.HTTPConnection(address.host, address.port, timeout=TIMEOUT_S)

    def send(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: Any = None
    ) -> http.client.HTTPResponse:
        """The response, its body not read yet. path: below the server's address."""
        data = None if body is None else json.dumps(body).encode()
        connection.request(method, self._address.path + path, data, self._headers)
        return connection.getresponse()


def read_answer(path: str, body: bytes, answer_type: type[T]) -> T:
    """ValueError for what another server may answer there, or one of another version."""
    try:
        return msgspec.json.decode(body, type=answer_type)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"{path}: this is not what minisgl answers: {error}") from error


def message_of(body: bytes, status: int) -> str:
    """Why a server refused, in its own words if it has some."""
    return _words_of(body) or f"HTTP {status}: {body[:120].decode(errors='replace').strip()}"


def _words_of(body: bytes) -> str | None:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return None

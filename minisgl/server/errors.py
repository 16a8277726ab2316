"""Errors as clients of the OpenAI API know them: {"error": {"message", "type", "param", "code"}}."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

_TYPES = {401: "authentication_error", 429: "rate_limit_error"}  # others by the first digit
MAX_MESSAGE_LEN = 1000  # a message may quote what was sent


class ApiError(Exception):
    """Ends a request with an HTTP status. param: the field that is wrong. code: a word for programs, never a number."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        """What goes over the wire, as JSON or as an event in a stream. The message may quote anything: it is cut and
        made valid UTF-8 here."""
        message = self.message.encode(errors="backslashreplace").decode()
        if len(message) > MAX_MESSAGE_LEN:
            message = f"{message[:MAX_MESSAGE_LEN]}..."
        kind = _TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        return {"error": {"message": message, "type": kind, "param": self.param, "code": self.code}}

    def encode(self) -> bytes:
        return msgspec.json.encode(self.body())

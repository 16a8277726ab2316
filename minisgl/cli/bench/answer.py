"""One streamed answer of OpenAI's API: when its pieces came, and what it said about tokens."""

from __future__ import annotations

import time

import msgspec


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _Details | None = None

    @property
    def cached_tokens(self) -> int:
        """0 when the server does not say."""
        return (self.prompt_tokens_details and self.prompt_tokens_details.cached_tokens) or 0


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Error(msgspec.Struct):
    message: str | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: Usage | None = None
    error: _Error | None = None


_decode = msgspec.json.Decoder(_Event).decode


class Answer:
    """Fed with the body as it comes. times: of `perf_counter`, when each piece of text came."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.usage: Usage | None = None
        self._pieces: list[str] = []
        self._rest = b""
        self._error: str | None = None
        self._finish_reason: str | None = None
        self._is_done = False

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def feed(self, data: bytes) -> None:
        now = time.perf_counter()
        *events, self._rest = (self._rest + data).replace(b"\r\n", b"\n").split(b"\n\n")
        for event in events:
            for line in event.split(b"\n"):
                if line.startswith(b"data:"):
                    self._take(line[5:].strip(), now)

    def error(self, status: int) -> str | None:
        """What is wrong with the whole answer; None when it is as it should be."""
        if status != 200:
            return f"HTTP {status}: {message_of(self._rest)}"
        if self._error is not None:
            return f"error in the stream: {self._error}"
        if not self._is_done:
            return "the stream ended without [DONE]"
        if self._finish_reason is None:
            return "the stream named no finish_reason"
        return None if self.times else "the answer holds no text"

    def _take(self, data: bytes, now: float) -> None:
        if data == b"[DONE]":
            self._is_done = True
            return
        try:
            event = _decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            self._error = f"{error}: {data[:80]!r}"
            return
        if event.error is not None:
            self._error = event.error.message or "no message"
        self.usage = event.usage or self.usage
        for choice in event.choices or ():
            self._take_choice(choice, now)

    def _take_choice(self, choice: _Choice, now: float) -> None:
        self._finish_reason = choice.finish_reason or self._finish_reason
        text = choice.text or (choice.delta and (choice.delta.content or choice.delta.reasoning_content))
        if text:
            self._pieces.append(text)
            self.times.append(now)


def message_of(body: bytes) -> str:
    """The message of an error object, or the beginning of whatever else the body holds."""
    try:
        error = _decode(body).error
    except (msgspec.MsgspecError, UnicodeDecodeError):
        error = None
    return (error and error.message) or body[:120].decode(errors="replace").strip() or "no message"

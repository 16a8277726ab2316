"""What a generating request meets on its way: the state of the server, and those who watch it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Literal, Protocol

from minisgl.llm.client import Delta, Prepared
from minisgl.llm.stream import Output

Ending = Literal["ok", "disconnect", "timeout", "abort", "error"]


class RequestObserver(Protocol):
    """Watches one request, in the event loop's thread. It is made when the request arrives."""

    def started(self, request_id: str, endpoint: str, prepared: Sequence[Prepared]) -> None:
        """It is tokenized and let in. request_id: ours. endpoint: such as "/v1/completions"."""
        ...

    def deltas(self, deltas: list[Delta]) -> None:
        """News of it has come; before it is written out."""
        ...

    def finished(self, ending: Ending, outputs: Sequence[Output]) -> None:
        """Called once after `started`, whatever happens. outputs: of the prompts that came to their end."""
        ...


class Gate(Protocol):
    def enter(self, num_sequences: int) -> AbstractContextManager[None]:
        """Be counted for as long as the block runs. ApiError (429, 503) when there is no room."""
        ...

"""What a client needs of an engine, wherever it runs: `Worker` in this process, `RemoteEngine` in another one."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Protocol

from minisgl.llm.router import Sink
from minisgl.message import Question, UserMsg
from minisgl.message.questions import AnswerT


class Link(Protocol):
    """Safe between threads. error: why the engine died, if it did; then every call that starts something fails."""

    error: BaseException | None

    def submit(self, requests: Sequence[UserMsg], sink: Sink) -> None:
        """Start these requests in one go; `sink` gets their replies, in the link's thread. EngineDied once closed."""
        ...

    def finish(self, uid: int, num_tokens: int) -> None:
        """A stop string was found: no more news of `uid`, and what it generated past `num_tokens` is forgotten."""
        ...

    def abort(self, uid: int) -> None:
        """Stop `uid`; its last reply says so. Of a `SlowQuestion`: no more work for its answer."""
        ...

    def forget(self, uid: int) -> None:
        """The reader of `uid` has left: no more replies, and no answer."""
        ...

    def ask(self, question: Question[AnswerT]) -> Future[AnswerT]:
        """What will hold the answer, or EngineDied. EngineDied once closed."""
        ...

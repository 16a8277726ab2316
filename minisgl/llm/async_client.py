"""`AsyncClient`: a client for one event loop, whose thread makes text of tokens; the link's only brings replies."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from minisgl.core import Limits, SamplingParams
from minisgl.llm.client import Client, Delta, Messages, Prepared, Prompt, Submission
from minisgl.llm.router import Arrival
from minisgl.llm.text_threads import in_thread, size_of
from minisgl.message import EngineStats
from minisgl.tokenizer import Tokenizer

OnOver = Callable[[], None]
OnNews = Callable[[list[Delta]], bool]


def _do_nothing() -> None:
    pass


def _leave_it(deltas: list[Delta]) -> bool:
    return False


class AsyncClient:
    """All methods belong to the event loop's thread. EngineDied from any of them when the engine has."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._mail: _Mail | None = None

    @property
    def tokenizer(self) -> Tokenizer:
        return self.client.tokenizer

    @property
    def limits(self) -> Limits:
        return self.client.limits

    async def prepare(self, prompt: Prompt, params: SamplingParams | None, *, cache_salt: str = "") -> Prepared:
        """Tokenize in a thread, and check. ValueError for what can never run (ContextLengthError when too long)."""
        return await in_thread(len(prompt), self.client.prepare, prompt, params, cache_salt)

    async def prepare_chat(
        self,
        messages: Messages,
        params: SamplingParams | None,
        template: Mapping[str, Any],
        *,
        cache_salt: str = "",
    ) -> Prepared:
        """The same for a conversation, by the model's chat template. template: its variables."""
        return await in_thread(size_of(messages), self.client.prepare_chat, messages, params, template, cache_salt)

    async def run(
        self,
        prepared: Sequence[Prepared],
        *,
        keep_text: bool = True,
        on_over: OnOver = _do_nothing,
        on_news: OnNews = _leave_it,
    ) -> AsyncGenerator[list[Delta], None]:
        """Start them together; all that has come since the last time, never an empty list, until all are over.

        Closing the generator aborts what still runs. What an unhurried reader has not taken yet is merged: one delta
        for each choice, however many tokens. keep_text: outputs have text and logprobs; who streams has had them.
        on_over: called, in the loop, as soon as the engine is done with them, while the reader may still be busy with
        what came before; maybe more than once.
        on_news: called, in the loop, with what has come while the reader waits for it; the reader gets what it does
        not want (False), and what it raises. It costs a fraction of what waking the reader does.
        """
        run = self.start(prepared, keep_text, on_over, on_news)
        try:
            async for deltas in run:
                yield deltas
        finally:
            run.close()

    def start(
        self,
        prepared: Sequence[Prepared],
        keep_text: bool = True,
        on_over: OnOver = _do_nothing,
        on_news: OnNews = _leave_it,
    ) -> Run:
        """The same, in the hands of somebody who may also abort it and read on; to be closed."""
        run = Run(self.client.submission(prepared, keep_text), self._mail_here(), on_over, on_news)
        run.start()
        return run

    async def stats(self) -> EngineStats:
        """Counters and sizes of scheduler and cache, as they are now."""
        return await asyncio.wrap_future(self.client.ask_stats())

    async def flush_cache(self) -> None:
        """Nothing that was cached until now is matched any more; requests that run keep what they hold."""
        await asyncio.wrap_future(self.client.flush_cache())

    def _mail_here(self) -> _Mail:
        loop = asyncio.get_running_loop()
        if self._mail is None or self._mail.loop is not loop:
            self._mail = _Mail(loop)
        return self._mail


class Run:
    """Prompts that were started together: an iterator of lists of deltas, for one reader. All in the loop's thread.

    The text is made when the loop gets to it: the link's thread, which wants the same interpreter, has little to do.
    """

    def __init__(self, submission: Submission, mail: _Mail, on_over: OnOver, on_news: OnNews) -> None:
        self._submission = submission
        self._mail = mail
        self._on_over = on_over
        self._on_news = on_news
        self._deltas: dict[tuple[int, int], Delta] = {}  # by prompt and choice: what the reader has not taken yet
        self._texts: dict[tuple[int, int], list[str]] = {}  # pieces of those that were merged
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None  # of a reader that is done with all that came before

    def start(self) -> None:
        self._submission.start(partial(self._mail.put, self))

    def abort(self) -> None:
        """Stop what still runs; the reader gets what there is, with finish_reason "abort"."""
        self._submission.abort()

    def close(self) -> None:
        """Stop what still runs, and give nothing more."""
        self._submission.close()

    def take(self, arrival: Arrival) -> None:
        """A reply has come. What goes wrong with it is the reader's to have, nobody else's."""
        try:
            delta = self._submission.take(arrival)
        except Exception as error:
            self._error = error
            return
        if delta is None:
            return
        key = (delta["index"], delta["choice"])
        first = self._deltas.setdefault(key, delta)
        if first is not delta:
            self._texts.setdefault(key, [first["text"]]).append(delta["text"])
            _merge(first, delta)

    def tell(self) -> None:
        """All has been taken that is there now: pass it on."""
        is_over = self._is_over
        waiter = self._waiter
        if waiter is not None and not waiter.done() and (is_over or (self._deltas and not self._is_passed_on())):
            waiter.set_result(None)
        if is_over:
            self._on_over()

    @property
    def _is_over(self) -> bool:
        return self._error is not None or self._submission.is_over

    def _is_passed_on(self) -> bool:
        try:
            if not self._on_news(self._all()):
                return False
        except Exception as error:
            self._error = error
        self._deltas = {}
        return self._error is None

    def __aiter__(self) -> Run:
        return self

    async def __anext__(self) -> list[Delta]:
        while not self._deltas:
            self._check_open()
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        deltas, self._deltas = self._all(), {}
        return deltas

    def _check_open(self) -> None:
        """Raises what ends the iterator."""
        if self._error is not None:
            raise self._error
        if self._submission.is_over:
            raise StopAsyncIteration

    def _all(self) -> list[Delta]:
        for key, pieces in self._texts.items():
            self._deltas[key]["text"] = "".join(pieces)
        self._texts.clear()
        return list(self._deltas.values())


class _Mail:
    """Brings replies into an event loop: one call there for all that have gathered, then one word to each run."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._arrived: list[tuple[Run, Arrival]] = []
        self._lock = threading.Lock()

    def put(self, run: Run, arrival: Arrival) -> None:
        """From any thread. After the loop has closed, nobody is told."""
        with self._lock:
            self._arrived.append((run, arrival))
            is_first = len(self._arrived) == 1
        if is_first:
            try:
                self.loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:
                self._arrived.clear()

    def _deliver(self) -> None:
        with self._lock:
            arrived, self._arrived = self._arrived, []
        runs: dict[Run, None] = {}
        for run, arrival in arrived:
            run.take(arrival)
            runs[run] = None
        for run in runs:
            run.tell()


def _merge(first: Delta, then: Delta) -> None:
    """Make `first` one delta for two in a row of the same choice, but for the text."""
    first["token_ids"] += then["token_ids"]
    then["token_ids"] = first["token_ids"]
    if "logprobs" in then:
        first["logprobs"] += then["logprobs"]
        then["logprobs"] = first["logprobs"]
    first.update(then)

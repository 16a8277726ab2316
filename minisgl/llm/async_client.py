"""`AsyncClient`: a client for one event loop. The link's thread makes text of tokens; the loop only hands it on."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any

from minisgl.core import Limits, SamplingParams
from minisgl.llm.client import Client, Delta, Messages, Prepared, Prompt, Submission
from minisgl.llm.stream import Arrival
from minisgl.llm.text_threads import in_thread, size_of
from minisgl.message import EngineStats
from minisgl.tokenizer import Tokenizer

OnOver = Callable[[], None]


def _do_nothing() -> None:
    pass


class AsyncClient:
    """All methods belong to the event loop's thread. EngineDied from any of them when the engine has."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._alarm: _Alarm | None = None

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
        self, prepared: Sequence[Prepared], *, keep_text: bool = True, on_over: OnOver = _do_nothing
    ) -> AsyncGenerator[list[Delta], None]:
        """Start them together; all that has come since the last time, never an empty list, until all are over.

        Closing the generator aborts what still runs. What an unhurried reader has not taken yet is merged: one delta
        for each choice, however many tokens. keep_text: outputs have text and logprobs; who streams has had them.
        on_over: called, in the loop, as soon as the engine is done with them, while the reader may still be busy with
        what came before; maybe more than once.
        """
        run = self.start(prepared, keep_text, on_over)
        try:
            async for deltas in run:
                yield deltas
        finally:
            run.close()

    def start(self, prepared: Sequence[Prepared], keep_text: bool = True, on_over: OnOver = _do_nothing) -> Run:
        """The same, in the hands of somebody who may also abort it and read on; to be closed."""
        run = Run(self.client.submission(prepared, keep_text), self._alarm_here(), on_over)
        run.start()
        return run

    async def stats(self) -> EngineStats:
        """Counters and sizes of scheduler and cache, as they are now."""
        return await asyncio.wrap_future(self.client.ask_stats())

    async def flush_cache(self) -> None:
        """Nothing that was cached until now is matched any more; requests that run keep what they hold."""
        await asyncio.wrap_future(self.client.flush_cache())

    def _alarm_here(self) -> _Alarm:
        loop = asyncio.get_running_loop()
        if self._alarm is None or self._alarm.loop is not loop:
            self._alarm = _Alarm(loop)
        return self._alarm


class Run:
    """Prompts that were started together: an iterator of lists of deltas, for one reader."""

    def __init__(self, submission: Submission, alarm: _Alarm, on_over: OnOver) -> None:
        self.news = asyncio.Event()
        self._submission = submission
        self._alarm = alarm
        self._on_over = on_over
        self._deltas: dict[tuple[int, int], Delta] = {}  # by prompt and choice: what the reader has not taken yet
        self._texts: dict[tuple[int, int], list[str]] = {}  # pieces of those that were merged
        self._error: Exception | None = None
        self._lock = threading.Lock()  # the link's thread gives, the loop's takes and closes

    def start(self) -> None:
        self._submission.start(self._give)

    def abort(self) -> None:
        """Stop what still runs; the reader gets what there is, with finish_reason "abort"."""
        with self._lock:
            self._submission.abort()

    def close(self) -> None:
        """Stop what still runs, and give nothing more."""
        with self._lock:
            self._submission.close()

    def tell(self) -> None:
        """In the loop's thread: something has come."""
        self.news.set()
        if self._is_over:
            self._on_over()

    @property
    def _is_over(self) -> bool:
        return self._error is not None or self._submission.is_over

    def __aiter__(self) -> Run:
        return self

    async def __anext__(self) -> list[Delta]:
        while not (deltas := self._take_all()):
            self.news.clear()
            await self.news.wait()
        return deltas

    def _take_all(self) -> list[Delta]:
        """Empty while nothing is new. All under the lock: a request is over a moment before its last delta is here."""
        with self._lock:
            if not self._deltas:
                self._check_open()
            deltas, self._deltas = self._deltas, {}
            texts, self._texts = self._texts, {}
        for key, pieces in texts.items():
            deltas[key]["text"] = "".join(pieces)
        return list(deltas.values())

    def _check_open(self) -> None:
        """Raises what ends the iterator."""
        if self._error is not None:
            raise self._error
        if self._submission.is_over:
            raise StopAsyncIteration

    def _give(self, arrival: Arrival) -> None:
        """Called in the link's thread."""
        with self._lock:
            had_news = bool(self._deltas) or self._error is not None
            try:
                delta = self._submission.take(arrival)
            except Exception as error:  # the reader is to have it, not the thread on which everybody depends
                self._error, delta = error, None
            if delta is not None:
                self._put(delta)
            has_news = bool(self._deltas) or self._error is not None
        if (has_news and not had_news) or self._is_over:
            self._alarm.ring(self)

    def _put(self, delta: Delta) -> None:
        key = (delta["index"], delta["choice"])
        first = self._deltas.setdefault(key, delta)
        if first is not delta:
            self._texts.setdefault(key, [first["text"]]).append(delta["text"])
            _merge(first, delta)


class _Alarm:
    """Tells an event loop which runs have news: one call into the loop for all that have gathered meanwhile."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._runs: list[Run] = []
        self._lock = threading.Lock()

    def ring(self, run: Run) -> None:
        """From any thread. After the loop has closed, nobody is told."""
        with self._lock:
            self._runs.append(run)
            is_first = len(self._runs) == 1
        if is_first:
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        with self._lock:
            runs, self._runs = self._runs, []
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

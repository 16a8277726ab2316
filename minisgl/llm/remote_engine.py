"""`RemoteEngine`: the parent's side of an engine process."""

from __future__ import annotations

import signal
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path

from minisgl.core import Limits
from minisgl.llm.child import Child, running_child
from minisgl.llm.client import Client
from minisgl.llm.config import LLMConfig
from minisgl.llm.router import EngineDied, Router, Sink
from minisgl.message import (
    AbortMsg,
    EngineFailed,
    EngineInfo,
    EngineReady,
    FinishMsg,
    LoadProgress,
    Question,
    Reply,
    ShutdownMsg,
    TokenReply,
    UserMsg,
)
from minisgl.message.questions import AnswerT
from minisgl.message.wire import News
from minisgl.tokenizer import load_tokenizer
from minisgl.utils.logging import get_logger
from minisgl.utils.malloc import return_free_memory

POLL_S = 0.2  # how soon a death is noticed, and messages that met a full socket are sent
logger = get_logger(__name__)


class RemoteEngine:
    """An engine in a process of its own, with the verbs of `Link`; safe between threads.

        engine = RemoteEngine(LLMConfig.from_kwargs(model="smollm2"), on_death=print)
        client = engine.connect()

    ready: the EngineInfo once it has loaded, a ValueError with the engine's own words if the configuration or the
    model is wrong, else EngineDied. on_progress is told what is being loaded. on_death is told why, when the
    process has ended without being asked to, and after every open request was answered with an error. Both are called
    in the one thread that also takes the replies, calls the sinks and starts the process: the kernel kills the process
    when that thread ends. Raises what `running_child` does.
    """

    def __init__(
        self,
        config: LLMConfig,
        *,
        on_progress: Callable[[str], None] = lambda stage: None,
        on_death: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self.error: BaseException | None = None
        self.ready: Future[EngineInfo] = Future()
        self.ready.set_running_or_notify_cancel()
        self._on_progress, self._on_death = on_progress, on_death
        self._router = Router()
        self._client: Client | None = None
        self._connecting = threading.Lock()
        self._taken_back: deque[int] = deque()  # requests that were aborted before they were sent
        self._failure: EngineFailed | None = None
        self._closing = False
        started = Future[Child]()
        args = (config, started)
        self._thread = threading.Thread(target=self._run, args=args, name="minisgl-remote-engine", daemon=True)
        self._thread.start()
        self._child = started.result()
        self._sender = self._child.sender

    @property
    def pid(self) -> int:
        """Of the engine's process."""
        return self._child.process.pid

    def connect(self) -> Client:
        """The client, always the same one, once the engine is ready: waits, and loads the tokenizer.

        Raises what `ready` holds. (A second client would give the uids of the first one once more.)
        """
        info = self.ready.result()
        with self._connecting:
            if self._client is None:
                limits = Limits(
                    info.vocab_size,
                    info.max_seq_len,
                    info.pool_len,
                    heeds_priority=info.heeds_priority,
                    explains=info.explains,
                )
                end_token_ids = frozenset(info.end_token_ids)
                self._client = Client(self, load_tokenizer(Path(info.path)), limits, end_token_ids)
                return_free_memory()
            return self._client

    def submit(self, requests: Sequence[UserMsg], sink: Sink) -> None:
        frame = self._sender.encode(requests)  # what cannot be encoded must not be registered
        self._router.register([request.uid for request in requests], sink)
        self._sender.send(requests, frame)

    def finish(self, uid: int, num_tokens: int) -> None:
        self.forget(uid)
        self._sender.send([FinishMsg(uid, num_tokens)])

    def abort(self, uid: int) -> None:
        if self._sender.take_back(uid):
            self._taken_back.append(uid)
        else:
            self._sender.send([AbortMsg(uid)])

    def forget(self, uid: int) -> None:
        self._router.forget(uid)

    def ask(self, question: Question[AnswerT]) -> Future[AnswerT]:
        answer = self._router.expect(question)
        self._sender.send([question])
        return answer

    def shutdown(self, timeout: float = 10.0) -> None:
        """Abort what is open and wait for the process to end; it is killed if it is there after `timeout` seconds.

        A process that has not loaded yet is killed at once. May be called twice, not from `on_death` or a sink.
        """
        self._closing = True
        if self.ready.done():
            self._sender.send([ShutdownMsg()])
            self._thread.join(timeout)
        if self._thread.is_alive():
            self._child.process.kill()
            self._thread.join()

    # ---- what comes, in the one thread

    def _run(self, config: LLMConfig, started: Future[Child]) -> None:
        code = 0
        try:
            with running_child(config) as child:
                started.set_result(child)
                self._follow(child)
            code = child.process.returncode
        except Exception as error:  # a frame that cannot be read, a callback that failed
            if not started.done():  # nobody has this object yet
                started.set_exception(error)
                return
            logger.exception("the link to the engine broke")
            self._failure = self._failure or EngineFailed(f"the link to it broke: {error!r}")
        self._announce(self._reason(code))

    def _follow(self, child: Child) -> None:
        """Take what comes until the process has ended and nothing is left."""
        news: list[News] = []
        is_alive = True
        while is_alive or news:
            is_alive = child.process.poll() is None
            news = child.inbox.receive(POLL_S)
            self._take(news)
            self._answer_taken_back()
            child.sender.flush()

    def _take(self, news: list[News]) -> None:
        replies: list[Reply] = []
        for item in news:
            if isinstance(item, LoadProgress):
                self._on_progress(item.stage)
            elif isinstance(item, EngineReady):
                self.ready.set_result(item.info)
            elif isinstance(item, EngineFailed):
                self._failure = item
            else:
                replies.append(item)
        self._router.send(replies)

    def _answer_taken_back(self) -> None:
        uids = [self._taken_back.popleft() for _ in range(len(self._taken_back))]
        self._router.send([TokenReply(uid, finish_reason="abort") for uid in uids])

    def _announce(self, reason: str) -> None:
        died = not self._closing
        if died:
            self.error = EngineDied(reason)
        self._router.close(reason)
        if not self.ready.done():
            by_user = self._failure is not None and self._failure.by_user
            self.ready.set_exception(ValueError(reason) if by_user else EngineDied(reason))
        if died:
            self._on_death(reason)

    def _reason(self, code: int) -> str:
        if self._failure is not None:
            return self._failure.error if self._failure.by_user else f"the engine died: {self._failure.error}"
        if self._closing:
            return "the engine was shut down"
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return f"the engine died: {how}"

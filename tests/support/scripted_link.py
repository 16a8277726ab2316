"""An engine without a model or a process: it answers by a script, in steps, as the real one does.

    client = make_engine_client(lambda request: [*tokens("Hi"), 0.1, *tokens("!"), EOS])     # with a pause

A script gets the `UserMsg` and gives, one a step:

    int               a token                       tuple of ints   several tokens at once
    float             seconds until the next step   Exception       the request fails with this text
    TokenReply        is sent as it is, but for its uid
    Explanation       the first reply has it; if the request wants it early, it is one of its own

When the script ends, or max_tokens is reached, the request ends with "length"; with "stop" after EOS (257) or a stop
token. Logprobs, where asked for, are made up from the token ids (`logprob_of`), so that a test can tell what must come.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future

import msgspec
from support.tiny_model import EOS, VOCAB, make_tokenizer

from minisgl.core import Explanation, Limits, TokenLogprobs
from minisgl.core.picture import NodeUse, TreePath, TreePicture
from minisgl.llm import AsyncClient
from minisgl.llm.client import Client
from minisgl.llm.router import EngineDied, Router, Sink
from minisgl.message import (
    Activity,
    ActivityMsg,
    ActivityReply,
    CountReply,
    EngineStats,
    ExplainMsg,
    ExplainReply,
    FinishReason,
    NodeMsg,
    NodeReply,
    PathMsg,
    PathReply,
    ProbeMsg,
    PurgeMsg,
    Question,
    Reply,
    StatsReply,
    TokenReply,
    TreeMsg,
    TreeReply,
    UserMsg,
)
from minisgl.message.questions import AnswerT
from minisgl.tokenizer import Tokenizer

_TOKENIZER = Tokenizer(make_tokenizer())

Item = int | float | tuple[int, ...] | Exception | TokenReply | Explanation
Script = Callable[[UserMsg], Iterable[Item]]


def tokens(text: str) -> list[int]:
    """The ids of a text, one for each of its bytes (an id is not its byte)."""
    ids: list[int] = _TOKENIZER.encode(text).tolist()
    return ids


def echo(request: UserMsg) -> Iterable[Item]:
    """The prompt, over and over."""
    while True:
        yield from request.input_ids.tolist()


def logprob_of(token_id: int, top: int) -> TokenLogprobs:
    """Made up, but always the same: the token itself is the best one."""
    ranked = [((token_id + i) % VOCAB, -0.125 * (token_id % 8) - i) for i in range(top)]
    return TokenLogprobs(token_id, -0.125 * (token_id % 8), tuple(ranked))


class ScriptedLink:
    """The verbs of `llm.Worker`. What it was asked is in requests, probes, purges, aborted and finished (uid: tokens).

    cached_len: what every first reply, and every probe, reports. explanation, activity: the answers to whoever asks for
    them. asked_since: from which step on. picture, node_use, path: the answers to `asked`. A purge frees 7 tokens. Ends
    with its process; `die` makes it fail as a dead engine does.
    """

    def __init__(self, script: Script = echo, *, cached_len: int = 0, stats: EngineStats | None = None) -> None:
        self.error: BaseException | None = None
        self.requests: list[UserMsg] = []
        self.aborted: list[int] = []
        self.finished: dict[int, int] = {}
        self.probes: list[ProbeMsg | ExplainMsg] = []
        self.purges: list[PurgeMsg] = []
        self.stats = stats or EngineStats()
        self.explanation = Explanation()
        self.activity = Activity(self.stats, [], 0, [])
        self.asked_since: list[int] = []
        self.picture: TreePicture | None = None
        self.node_use: NodeUse | None = None
        self.path = TreePath([], 0)
        self.asked: list[TreeMsg | NodeMsg | PathMsg] = []
        self._script, self._cached_len = script, cached_len
        self._router = Router()
        self._open: dict[int, _Answer] = {}
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name="scripted-link", daemon=True).start()

    @property
    def num_open(self) -> int:
        with self._changed:
            return len(self._open)

    def submit(self, requests: Sequence[UserMsg], sink: Sink) -> None:
        self._router.register([request.uid for request in requests], sink)
        with self._changed:
            self.requests += requests
            self._open.update((r.uid, _Answer(r, iter(self._script(r)), self._cached_len)) for r in requests)
            self._changed.notify()

    def finish(self, uid: int, num_tokens: int) -> None:
        self._router.forget(uid)
        with self._changed:
            self.finished[uid] = num_tokens
            self._open.pop(uid, None)

    def abort(self, uid: int) -> None:
        with self._changed:
            self.aborted.append(uid)
            if uid in self._open:
                self._open[uid].abort()
                self._changed.notify()

    def forget(self, uid: int) -> None:
        self._router.forget(uid)

    def ask(self, question: Question[AnswerT]) -> Future[AnswerT]:
        answer = self._router.expect(question)
        if isinstance(question, ProbeMsg):
            self.probes.append(question)
            self._router.send([CountReply(question.uid, self._cached_len)])
        elif isinstance(question, ExplainMsg):
            self.probes.append(question)
            self._router.send([ExplainReply(question.uid, self.explanation)])
        elif isinstance(question, ActivityMsg):
            self.asked_since.append(question.since)
            self._router.send([ActivityReply(question.uid, self.activity)])
        elif isinstance(question, TreeMsg | NodeMsg | PathMsg):
            self.asked.append(question)
            self._router.send([self._of_the_tree(question)])
        elif isinstance(question, PurgeMsg):
            self.purges.append(question)
            self._router.send([CountReply(question.uid, 7)])
        else:
            self._router.send([StatsReply(question.uid, self.stats)])
        return answer

    def _of_the_tree(self, question: TreeMsg | NodeMsg | PathMsg) -> Reply:
        if isinstance(question, TreeMsg):
            return TreeReply(question.uid, self.picture)
        if isinstance(question, NodeMsg):
            return NodeReply(question.uid, self.node_use)
        return PathReply(question.uid, self.path)

    def die(self, reason: str = "the engine died") -> None:
        """Every open request gets an error, and whoever comes later EngineDied."""
        self.error = EngineDied(reason)
        with self._changed:
            self._open.clear()
        self._router.close(reason)

    def _run(self) -> None:
        while True:
            with self._changed:
                now = time.monotonic()
                ready = [answer for answer in self._open.values() if answer.due <= now]
                if not ready:
                    due = min((answer.due for answer in self._open.values()), default=None)
                    self._changed.wait(None if due is None else due - now)
                    continue
                replies = [reply for answer in ready if (reply := answer.next()) is not None]
                for reply in replies:
                    if reply.finish_reason is not None:
                        del self._open[reply.uid]
            self._router.send([*replies])


class _Answer:
    """One request on its way through the script."""

    def __init__(self, request: UserMsg, items: Iterator[Item], cached_len: int) -> None:
        self.due = 0.0
        self._request, self._items, self._cached_len = request, items, cached_len
        self._params = request.sampling_params
        self._num_tokens, self._replied, self._aborted = 0, False, False
        self._explanation: Explanation | None = None
        self._told_prompt = False
        self._ends = {*self._params.stop_token_ids, *(() if self._params.ignore_eos else (EOS,))}

    def abort(self) -> None:
        self.due, self._aborted = 0.0, True

    def next(self) -> TokenReply | None:
        if self._aborted:
            return self.reply(finish_reason="abort")
        if self._params.max_tokens == 0:
            return self.reply(finish_reason="length")
        try:
            item = next(self._items, None)
        except Exception as error:
            item = error
        if isinstance(item, float):
            self.due = time.monotonic() + item
            return None
        if isinstance(item, Explanation):
            self._explanation = item
            return self.reply() if self._request.explain else None
        if isinstance(item, TokenReply):
            return msgspec.structs.replace(item, uid=self._request.uid)
        if item is None or isinstance(item, Exception):
            return self.reply(finish_reason="error" if item else "length", error=str(item) if item else None)
        return self._tokens((item,) if isinstance(item, int) else item)

    def reply(
        self, token_ids: tuple[int, ...] = (), finish_reason: FinishReason | None = None, error: str | None = None
    ) -> TokenReply:
        first, self._replied = not self._replied, True
        top, prompt_top = self._params.logprobs, self._params.prompt_logprobs
        is_early = first and not token_ids and finish_reason is None
        tells_prompt = prompt_top is not None and not is_early and not self._told_prompt
        self._told_prompt |= tells_prompt
        prompt = [logprob_of(i, prompt_top or 0) for i in self._request.input_ids[1:].tolist()]
        return TokenReply(
            self._request.uid,
            token_ids,
            finish_reason,
            logprobs=() if top is None else tuple(logprob_of(token_id, top) for token_id in token_ids),
            cached_len=self._cached_len if first else None,
            queue_s=0.0 if first else None,
            prompt_logprobs=(None, *prompt) if tells_prompt else None,
            error=error,
            explanation=self._explanation if first else None,
        )

    def _tokens(self, token_ids: tuple[int, ...]) -> TokenReply:
        token_ids = token_ids[: self._params.max_tokens - self._num_tokens]
        self._num_tokens += len(token_ids)
        if token_ids[-1] in self._ends and self._num_tokens > self._params.min_tokens:
            return self.reply(token_ids, "stop")
        return self.reply(token_ids, "length" if self._num_tokens == self._params.max_tokens else None)


def make_engine_client(
    script: Script = echo,
    *,
    link: ScriptedLink | None = None,
    tokenizer: Tokenizer | None = None,
    limits: Limits | None = None,
) -> AsyncClient:
    """A client of a scripted link: one byte a token unless another tokenizer is given, context 512, pool 2048."""
    tokenizer = tokenizer or _TOKENIZER
    limits = limits or Limits(max(VOCAB, tokenizer.vocab_size), 512, 2048)
    return AsyncClient(Client(link or ScriptedLink(script), tokenizer, limits, frozenset({EOS})))

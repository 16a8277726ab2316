"""The tokenizer's side of an engine: prompts to requests, which `Submission` follows. `LLM` and `AsyncLLM` share it."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from minisgl.core import Explanation, Limits, SamplingParams
from minisgl.core.picture import MAX_PICTURE_NODES, TreePath
from minisgl.core.seeds import choice_seed
from minisgl.llm.encoder import Encoder, Messages, Prompt, check_salt
from minisgl.llm.link import Link
from minisgl.llm.stats import Stats
from minisgl.llm.stream import RequestStream
from minisgl.llm.submission import Submission
from minisgl.message import (
    Activity,
    ActivityMsg,
    EngineStats,
    ExplainMsg,
    NodeMsg,
    PathMsg,
    ProbeMsg,
    PurgeMsg,
    SlowQuestion,
    StatsMsg,
    TreeMsg,
    UserMsg,
)
from minisgl.message.questions import AnswerT
from minisgl.tokenizer import Tokenizer
from minisgl.utils.arrays import NO_IDS, Int32Array


@dataclass(frozen=True, eq=False)
class Prepared:
    """A prompt that can run: tokenized and checked.

    cache_salt: whose cached prefixes it may use and leave. priority, explain: see `UserMsg`.
    """

    input_ids: Int32Array
    params: SamplingParams
    cache_salt: str = ""
    priority: int = 0
    explain: bool = False


class Probe(NamedTuple):
    """How many tokens a prompt has, and how many of them a request would find cached: never all of them."""

    prompt_tokens: int
    cached_tokens: int


class Place(NamedTuple):
    """Where in the tree a prompt lies."""

    prompt_tokens: int
    path: TreePath


class Client:
    """Makes requests and follows them. Safe to use from several threads. encoder: of prompts to token ids.

    chat_advice: fields of `SamplingParams` for what chats leave out.
    """

    def __init__(
        self,
        link: Link,
        tokenizer: Tokenizer,
        limits: Limits,
        end_token_ids: frozenset[int],
        chat_advice: Mapping[str, int | float] | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.limits = limits
        self.encoder = Encoder(tokenizer, limits)
        self.stats = Stats()
        self._link = link
        self._end_token_ids = end_token_ids
        self._chat_advice = chat_advice or {}
        self._uids = itertools.count()

    def prepare(
        self, prompt: Prompt, params: SamplingParams | None, cache_salt: str = "", priority: int = 0
    ) -> Prepared:
        """Tokenize a text, take token ids as they are, and check both. ValueError when it can never run."""
        return self._checked(self.encoder.ids(prompt), params, cache_salt, priority)

    def prepare_chat(
        self,
        messages: Messages,
        params: SamplingParams | None,
        template_kwargs: Mapping[str, Any],
        cache_salt: str = "",
        priority: int = 0,
    ) -> Prepared:
        """Prepare a conversation, by the model's chat template. The model's advice fills what `params` leave out."""
        (params,) = each_params(params, 1)
        ids = self.encoder.chat_ids(messages, template_kwargs)
        return self._checked(ids, params.advised(self._chat_advice), cache_salt, priority)

    def submission(self, prepared: Sequence[Prepared], keep_text: bool = True) -> Submission:
        """Requests for all of them, to be started together. keep_text: outputs have text and logprobs, as deltas do."""
        messages, streams = [], []
        for index, prompt in enumerate(prepared):
            params = _for_engine(prompt.params)
            context = self.tokenizer.context(prompt.input_ids, params.skip_special_tokens)
            for choice, seed in enumerate(_seeds(prompt.params)):
                uid = next(self._uids)
                more = (prompt.cache_salt, prompt.priority, prompt.explain)
                messages.append(UserMsg(uid, prompt.input_ids, params, seed, *more))
                streams.append(self._stream(uid, index, choice, prompt, keep_text, context))
        return Submission(self._link, self.stats, messages, streams)

    def ask_stats(self, recount: bool = False) -> Future[EngineStats]:
        """Sizes and totals of scheduler and cache. recount: check all of them first; what is wrong ends the engine."""
        return self._link.ask(StatsMsg(next(self._uids), recount))

    def ask_activity(self, since: int) -> Future[Activity]:
        """What was done from step `since` on, and what is being done. Steps are recorded for 30 s from now on."""
        return self._link.ask(ActivityMsg(next(self._uids), since))

    def ask_cached(self, input_ids: Int32Array, cache_salt: str = "") -> Future[int]:
        """How many tokens of this prompt would not have to be computed now. Nothing is refreshed by the question.

        ValueError for a prompt that can never run.
        """
        self._check_question(input_ids, cache_salt)
        return self._link.ask(ProbeMsg(next(self._uids), input_ids, cache_salt))

    def ask_explained(self, input_ids: Int32Array, cache_salt: str = "") -> Future[Explanation]:
        """Why the tokens of this prompt would have to be computed now, or not. Nothing is refreshed by the question.

        ValueError for a prompt that can never run, and where nothing is explained.
        """
        self.limits.check_explains()
        self._check_question(input_ids, cache_salt)
        return self._link.ask(ExplainMsg(next(self._uids), input_ids, cache_salt))

    def tree_question(self, node: int | None, max_nodes: int, head_len: int) -> TreeMsg:
        """To `ask`: the prefix cache's trees, or what is below a node; None if it is gone. The largest `max_nodes`.

        head_len: so many of each node's first token ids. ValueError for a number of nodes out of range.
        """
        if not 1 <= max_nodes <= MAX_PICTURE_NODES:
            raise ValueError(f"max_nodes={max_nodes} is not between 1 and {MAX_PICTURE_NODES}")
        return TreeMsg(next(self._uids), node, max_nodes, head_len)

    def node_question(self, node: int, tail_len: int) -> NodeMsg:
        """To `ask`: who uses a node; None if it is gone. tail_len: so many of the last token ids of its path."""
        return NodeMsg(next(self._uids), node, tail_len)

    def ask(self, question: SlowQuestion[AnswerT]) -> Future[AnswerT]:
        """Have it worked on, a little at every step."""
        return self._link.ask(question)

    def leave(self, question: SlowQuestion[Any]) -> None:
        """Nobody waits for its answer any more: there will be none, and no more work for it."""
        self._link.forget(question.uid)
        self._link.abort(question.uid)

    def ask_path(self, input_ids: Int32Array, cache_salt: str = "") -> Future[TreePath]:
        """Where a prompt lies in the tree. ValueError for one that can never run."""
        self._check_question(input_ids, cache_salt)
        return self._link.ask(PathMsg(next(self._uids), input_ids, cache_salt))

    def purge_cache(self, prefix: Int32Array = NO_IDS, cache_salt: str | None = None) -> Future[int]:
        """From the answer on, nothing that was cached before and begins with `prefix` is matched.

        cache_salt: whose; None: everybody's. Running requests keep what they hold. The answer: tokens freed at once.
        """
        if cache_salt is not None:
            check_salt(cache_salt)
        return self._link.ask(PurgeMsg(next(self._uids), prefix, cache_salt))

    def _check_question(self, input_ids: Int32Array, cache_salt: str) -> None:
        check_salt(cache_salt)
        self.limits.check_ids(input_ids)
        self.limits.check_len(len(input_ids))

    def _checked(
        self, input_ids: Int32Array, params: SamplingParams | None, cache_salt: str, priority: int
    ) -> Prepared:
        (params,) = each_params(params, 1)
        check_salt(cache_salt)
        self.limits.check(input_ids, params)
        self.limits.check_priority(priority)
        return Prepared(input_ids, params, cache_salt, priority)

    def _stream(
        self, uid: int, index: int, choice: int, prompt: Prepared, keep_text: bool, context: Sequence[int]
    ) -> RequestStream:
        num, params = len(prompt.input_ids), prompt.params
        return RequestStream(uid, index, choice, num, params, self.tokenizer, self._end_token_ids, keep_text, context)


def each_params(params: SamplingParams | Sequence[SamplingParams] | None, num_prompts: int) -> list[SamplingParams]:
    """One for each prompt: the same one for all, or a list of as many. ValueError when it is anything else."""
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * num_prompts
    if not isinstance(params, Sequence) or not all(isinstance(each, SamplingParams) for each in params):
        raise ValueError(f"sampling_params are SamplingParams, one or a list of them, not {type(params).__name__}")
    if len(params) != num_prompts:
        raise ValueError(f"{len(params)} sampling_params were given for {num_prompts} prompts")
    return list(params)


def _for_engine(params: SamplingParams) -> SamplingParams:
    """Without stop strings: they are found here, and the engine would have to read and check them for every choice."""
    return replace(params, stop=()) if params.stop else params


def _seeds(params: SamplingParams) -> list[int]:
    """One for each choice; a request without a seed gets a fresh one."""
    seed = secrets.randbits(63) if params.seed is None else params.seed
    return [choice_seed(seed, choice) for choice in range(params.n)]

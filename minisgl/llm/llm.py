"""`LLM`: a model in this process, answering in plain function calls."""

from __future__ import annotations

import queue
import weakref
from collections.abc import Generator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast, overload

from minisgl.core import BatchOutput, ForwardInput, SamplingParams
from minisgl.engine.spec import EngineSpec
from minisgl.llm.assembly import assemble
from minisgl.llm.client import Client, Prepared, Probe, each_params
from minisgl.llm.config import LLMConfig
from minisgl.llm.encoder import Messages, Prompt, Prompts, each_prompt, is_batch, numbered
from minisgl.llm.explained import Explained
from minisgl.llm.router import Arrival
from minisgl.llm.stream import Output
from minisgl.llm.submission import Delta
from minisgl.llm.tree_text import draw_tree
from minisgl.llm.worker import Worker
from minisgl.scheduler.cache_manager import CacheManager
from minisgl.utils.arrays import NO_IDS, Int32Array
from minisgl.utils.model_store import resolve_model
from minisgl.utils.progress import ProgressBar

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_CHAT_KEYWORDS = ("sampling_params", "stream", "use_tqdm", "cache_salt", "priority")
Params = SamplingParams | Sequence[SamplingParams] | None


class LLM:
    """An engine, its scheduler and its tokenizer.

        with LLM("smollm2") as llm:
            print(llm.generate(["The capital of France is"])[0]["text"])

    Keywords are the fields of `EngineConfig` and `SchedulerConfig`; an unknown one is a TypeError, a wrong value a
    ValueError. Methods may be called from several threads: their requests share batches and the prefix cache.
    client: for other front ends, such as `AsyncLLM`.
    """

    def __init__(self, model: str = "smollm2", **config: Any) -> None:
        self.config = LLMConfig.from_kwargs(model=str(model), **config)
        path = resolve_model(self.config.engine.model, need_weights=self.config.engine.load_format != "dummy")
        self_ref = weakref.ref(self)  # the worker must not keep its LLM alive

        def forward(forward_input: ForwardInput) -> BatchOutput:
            llm = self_ref()
            assert llm is not None, "a batch was launched after its LLM was gone"
            return llm._forward(forward_input)

        self._worker = Worker(partial(assemble, self.config, path), forward)
        self._parts = parts = self._worker.parts
        advice = parts.sampling_defaults
        self.client = Client(self._worker, parts.tokenizer, parts.limits, parts.end_token_ids, advice)
        self._finalizer = weakref.finalize(self, self._worker.shutdown)

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    @property
    def tokenizer(self) -> PreTrainedTokenizerFast:
        """The Hugging Face one, made when it is first asked for."""
        return self._parts.tokenizer.hf

    @property
    def spec(self) -> EngineSpec:
        """What the configuration became on this machine: device, dtype, context length."""
        return self._parts.engine.spec

    @property
    def sampling_defaults(self) -> dict[str, int | float]:
        """Sampling that the model's makers advise: fields of `SamplingParams` that `chat` has where none are given.

        `generate` takes them when asked: `SamplingParams(**llm.sampling_defaults, max_tokens=64)`.
        """
        return dict(self._parts.sampling_defaults)

    @property
    def cache_manager(self) -> CacheManager:
        """Pages, tree and rows, once every request has ended; only to look at while nothing runs."""
        self._worker.drain()
        return self._parts.scheduler.cache_manager

    @overload
    def generate(
        self,
        prompts: Prompts,
        sampling_params: Params = None,
        *,
        stream: Literal[False] = False,
        use_tqdm: bool | None = None,
        cache_salt: str = "",
        priority: int = 0,
    ) -> list[Output]: ...

    @overload
    def generate(
        self,
        prompts: Prompts,
        sampling_params: Params = None,
        *,
        stream: Literal[True],
        use_tqdm: bool | None = None,
        cache_salt: str = "",
        priority: int = 0,
    ) -> Generator[Delta, None, None]: ...

    def generate(
        self,
        prompts: Prompts,
        sampling_params: Params = None,
        *,
        stream: bool = False,
        use_tqdm: bool | None = None,
        cache_salt: str = "",
        priority: int = 0,
    ) -> list[Output] | Generator[Delta, None, None]:
        """The outputs, one for each prompt, in their order; with `stream` an iterator of deltas as they come.

        prompts: texts or token ids, one or many; or what a Hugging Face tokenizer or its chat template gives, see
        `encoder.each_prompt`. sampling_params: one for all, or one for each; never changed.
        All prompts are checked before any is computed: ValueError for one that can never run. Closing the iterator
        aborts what still runs. EngineDied if the engine does. use_tqdm: a bar on stderr, if that is a terminal
        and it takes long; None: for more than one prompt. cache_salt: only requests of the same one share cached
        prefixes. priority: larger goes first with policy="priority", and is kept longer with eviction="priority"; else
        only 0 is taken.
        """
        given = each_prompt(prompts)
        params = each_params(sampling_params, len(given))
        prepared = []
        for index, (prompt, each) in enumerate(zip(given, params, strict=True)):
            with numbered("prompt", index, len(given)):
                prepared.append(self.client.prepare(prompt, each, cache_salt, priority))
        return self._follow(prepared) if stream else self._collect(prepared, use_tqdm)

    @overload
    def chat(
        self,
        messages: Messages,
        sampling_params: SamplingParams | None = None,
        *,
        stream: Literal[False] = False,
        use_tqdm: bool | None = None,
        cache_salt: str = "",
        priority: int = 0,
        template: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> Output: ...

    @overload
    def chat(
        self,
        messages: Sequence[Messages],
        sampling_params: Params = None,
        *,
        stream: Literal[False] = False,
        use_tqdm: bool | None = None,
        cache_salt: str = "",
        priority: int = 0,
        template: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> list[Output]: ...

    @overload
    def chat(
        self,
        messages: Messages | Sequence[Messages],
        sampling_params: Params = None,
        *,
        stream: Literal[True],
        use_tqdm: bool | None = None,
        cache_salt: str = "",
        priority: int = 0,
        template: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> Generator[Delta, None, None]: ...

    def chat(
        self,
        messages: Messages | Sequence[Messages],
        sampling_params: Params = None,
        *,
        stream: bool = False,
        use_tqdm: bool | None = None,
        cache_salt: str = "",
        priority: int = 0,
        template: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> Output | list[Output] | Generator[Delta, None, None]:
        """The model's next message in a conversation, by its own chat template; for a list of conversations a list.

        messages: [{"role": ..., "content": ...}, ...], or a list of such. sampling_params: one for all, or one for
        each conversation; fields that are not given are as in `sampling_defaults`, and temperature=0 takes the most
        likely token. keywords: `tools`, `documents`, `chat_template`, `add_generation_prompt` and
        `continue_final_message`, as transformers' `apply_chat_template` has them, and variables that the template
        reads; any other, and a field of SamplingParams, is a TypeError. template: variables that the template may read
        or not, of which only a slip for one that it reads is a TypeError. Everything else as in `generate`.
        """
        variables = self.client.encoder.template_kwargs(template, keywords, _CHAT_KEYWORDS)
        chats = [cast(Messages, messages)] if not is_batch(messages) else cast("Sequence[Messages]", messages)
        params = each_params(sampling_params, len(chats))
        prepared = []
        for index, (chat, each) in enumerate(zip(chats, params, strict=True)):
            with numbered("conversation", index, len(chats)):
                prepared.append(self.client.prepare_chat(chat, each, variables, cache_salt, priority))
        if stream:
            return self._follow(prepared)
        outputs = self._collect(prepared, use_tqdm)
        return outputs if is_batch(messages) else outputs[0]

    def probe(self, prompt: Prompt, *, cache_salt: str = "") -> Probe:
        """How much of this prompt `generate` would find cached now, without running it, and without refreshing it.

        Never all of it: the last token is computed, to have something to choose the next one from.
        """
        return self._probe(self.client.encoder.ids(prompt), cache_salt)

    def probe_chat(
        self, messages: Messages, *, cache_salt: str = "", template: Mapping[str, Any] | None = None, **keywords: Any
    ) -> Probe:
        """`probe` for a conversation, with the keywords of `chat`."""
        return self._probe(self._chat_ids(messages, template, keywords), cache_salt)

    def explain(self, prompt: Prompt, *, cache_salt: str = "") -> Explained:
        """Why `generate` would have to compute this prompt's tokens now, or not; nothing is refreshed by the question.

        Of a prompt that has run, an output says it under "explanation".
        """
        return self._explain(self.client.encoder.ids(prompt), cache_salt)

    def explain_chat(
        self, messages: Messages, *, cache_salt: str = "", template: Mapping[str, Any] | None = None, **keywords: Any
    ) -> Explained:
        """`explain` for a conversation, with the keywords of `chat`."""
        return self._explain(self._chat_ids(messages, template, keywords), cache_salt)

    def purge_cache(self, prefix: Prompt | None = None, *, cache_salt: str | None = "") -> int:
        """Let no later request use what is cached now and begins with `prefix`; the number of tokens freed at once.

        prefix: None is all of it. Of a text the last word is left out, since its tokens may be others when the text
        goes on: what begins with the words before it goes too. ValueError for an empty prefix, or a text of one word.
        cache_salt: whose; "" is what was cached without a salt, None is everybody's. Requests that run keep what they
        hold and store nothing more; its room is free when they end.
        """
        ids = NO_IDS if prefix is None else self.client.encoder.prefix_ids(prefix)
        return self.client.purge_cache(ids, cache_salt).result()

    def stats(self) -> dict[str, Any]:
        """What the pool and the prefix cache hold now, and what was computed and reused since the start."""
        return self._worker.call(lambda: self.client.stats.with_engine(self._parts.scheduler.stats()))

    def tree(self, max_nodes: int = 50) -> str:
        """The prefix cache's tree as text, one line a node with the beginning of its text."""
        manager = self._parts.scheduler.cache_manager
        return self._worker.call(lambda: draw_tree(manager.prefix_cache, self._parts.tokenizer, max_nodes))

    def shutdown(self) -> None:
        """Abort what is open and end the worker. May be called twice; `generate` raises EngineDied afterwards."""
        self._worker.shutdown()

    def _forward(self, forward_input: ForwardInput) -> BatchOutput:
        """Every batch passes here once; replace it on the instance to watch batches go by."""
        return self._parts.forward(forward_input)

    def _chat_ids(
        self, messages: Messages, template: Mapping[str, Any] | None, keywords: Mapping[str, Any]
    ) -> Int32Array:
        encoder = self.client.encoder
        return encoder.chat_ids(messages, encoder.template_kwargs(template, keywords, ("cache_salt",)))

    def _probe(self, ids: Int32Array, cache_salt: str) -> Probe:
        return Probe(len(ids), self.client.ask_cached(ids, cache_salt).result())

    def _explain(self, ids: Int32Array, cache_salt: str) -> Explained:
        return Explained(ids, self.client.ask_explained(ids, cache_salt).result())

    def _follow(self, prepared: list[Prepared]) -> Generator[Delta, None, None]:
        """Start the requests when first asked for a delta; abort what still runs when closed."""
        replies: queue.SimpleQueue[Arrival] = queue.SimpleQueue()
        submission = self.client.submission(prepared)
        try:
            submission.start(replies.put)
            while not submission.is_over:
                arrival = replies.get()
                for reply in arrival.each():
                    delta = submission.take(reply, arrival.at)
                    if delta is not None:
                        yield delta
        finally:
            submission.close()

    def _collect(self, prepared: list[Prepared], use_tqdm: bool | None) -> list[Output]:
        """The outputs in the order of the prompts. This thread leaves the interpreter to the worker meanwhile."""
        replies: queue.SimpleQueue[Arrival] = queue.SimpleQueue()
        submission = self.client.submission(prepared)
        outputs: dict[int, Output] = {}
        is_hidden = len(prepared) == 1 if use_tqdm is None else not use_tqdm
        with ProgressBar("generating", len(prepared), "prompts", is_hidden=is_hidden) as bar:
            try:
                submission.start(replies.put)
                while not submission.is_over:
                    over = submission.gather(replies.get())
                    outputs |= over
                    bar.advance(len(over))
            finally:
                submission.close()
        return [outputs[index] for index in range(len(prepared))]

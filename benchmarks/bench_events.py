"""What a token costs between the engine's delta and the bytes of its event: `python benchmarks/bench_events.py`.

Prints microseconds a token for streams of chats and completions, one delta at a time, as under a light load.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from tokenizers import Tokenizer as Backend
from tokenizers import models
from transformers import PreTrainedTokenizerFast

from minisgl.core import SamplingParams, TokenLogprobs
from minisgl.llm.client import Prepared
from minisgl.llm.submission import Delta
from minisgl.server.schema.chat import ChatRequest
from minisgl.server.schema.completions import CompletionRequest
from minisgl.server.schema.messages import ChatMessage
from minisgl.server.schema.sampling import StreamOptions
from minisgl.server.stream.answer import Answer, Heading
from minisgl.server.stream.chat import ChatAnswer
from minisgl.server.stream.completions import CompletionAnswer
from minisgl.tokenizer import Tokenizer

NUM_TOKENS = 200_000
HEADING = Heading("chatcmpl-0123456789abcdef01234567", 1_750_000_000, "a-model")
TOKENIZER = Tokenizer(PreTrainedTokenizerFast(tokenizer_object=Backend(models.BPE({"a": 0}, []))))
PREPARED = [Prepared(np.zeros(100, np.int32), SamplingParams())]
USAGE = StreamOptions(include_usage=True, continuous_usage_stats=True)


def chat(**fields: object) -> Answer:
    request = ChatRequest(messages=[ChatMessage("user", "Hi")], stream=True, **fields)  # type: ignore[arg-type]
    return ChatAnswer(HEADING, request, PREPARED, TOKENIZER)


def completion() -> Answer:
    return CompletionAnswer(HEADING, CompletionRequest(prompt="Hi", stream=True), PREPARED, TOKENIZER)


CASES: dict[str, Callable[[], Answer]] = {
    "chat": chat,
    "completion": completion,
    "chat, usage in each": lambda: chat(stream_options=USAGE),
    "chat, 5 logprobs": lambda: chat(logprobs=True, top_logprobs=5),
}


def microseconds(answer: Answer) -> float:
    delta = Delta(index=0, choice=0, text=" token", token_ids=[0], finish_reason=None, cached_tokens=0)
    delta["logprobs"] = [TokenLogprobs(0, -0.5, tuple((0, -0.5 - i) for i in range(5)))]
    deltas = [delta]
    start = time.perf_counter()
    for _ in range(NUM_TOKENS):
        answer.events(deltas)
    return (time.perf_counter() - start) / NUM_TOKENS * 1e6


def main() -> None:
    for name, make in CASES.items():
        print(f"{name:22}{microseconds(make()):8.2f} us a token")


if __name__ == "__main__":
    main()

"""Outputs without deltas: the same as with them, for less work a token."""

from __future__ import annotations

import queue
from collections.abc import Iterable
from typing import Any

import pytest
from support.scripted_link import Item, Script, ScriptedLink, tokens
from support.tiny_model import EOS, VOCAB, make_tokenizer

from minisgl.core import Limits, SamplingParams
from minisgl.llm.client import Client
from minisgl.llm.router import Arrival, EngineDied, Router
from minisgl.llm.stream import Output
from minisgl.llm.submission import Submission
from minisgl.message import NextTokens, TokenReply, UserMsg
from minisgl.tokenizer import TextStream, Tokenizer

TOKENIZER = Tokenizer(make_tokenizer())
CRAB = tokens("crab: 🦀!")


def make_client(script: Script, link: ScriptedLink | None = None) -> Client:
    return Client(link or ScriptedLink(script), TOKENIZER, Limits(VOCAB, 512, 2048), frozenset({EOS}))


def submit(client: Client, num_prompts: int, **params: Any) -> tuple[Submission, queue.SimpleQueue[Arrival]]:
    sampling = SamplingParams(max_tokens=12, **params)
    submission = client.submission([client.prepare(tokens("Hi")[: 1 + i], sampling) for i in range(num_prompts)])
    arrivals: queue.SimpleQueue[Arrival] = queue.SimpleQueue()
    submission.start(arrivals.put)
    return submission, arrivals


def gathered(script: Script, num_prompts: int = 2, **params: Any) -> list[Output]:
    submission, arrivals = submit(make_client(script), num_prompts, **params)
    outputs: dict[int, Output] = {}
    while not submission.is_over:
        outputs |= submission.gather(arrivals.get(timeout=60))
    return [outputs[index] for index in range(num_prompts)]


def taken(script: Script, num_prompts: int = 2, **params: Any) -> list[Output]:
    submission, arrivals = submit(make_client(script), num_prompts, **params)
    outputs: dict[int, Output] = {}
    while not submission.is_over:
        arrival = arrivals.get(timeout=60)
        for reply in arrival.replies:
            delta = submission.take(reply, arrival.at)
            if delta is not None and "output" in delta:
                outputs[delta["index"]] = delta["output"]
    return [outputs[index] for index in range(num_prompts)]


def without_times(outputs: list[Output]) -> list[dict[str, Any]]:
    plain = []
    for output in outputs:
        choices = without_times(output.get("choices", []))
        plain.append({**{key: value for key, value in output.items() if key != "timings"}, "choices": choices})
    return plain


SCRIPTS: dict[str, list[Item]] = {
    "to max_tokens": [*CRAB, *CRAB],
    "to the end token": [*CRAB, EOS],
    "in the middle of a character": CRAB[:8],
    "several tokens a step": [tuple(CRAB[:5]), tuple(CRAB[5:])],
    "nothing but the end token": [EOS],
    "no token at all": [],
    "failed": [*CRAB[:3], RuntimeError("no memory")],
    "aborted": [*CRAB[:3], TokenReply(0, finish_reason="abort")],
}
PARAMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "ignore_eos": {"ignore_eos": True},
    "special tokens": {"ignore_eos": True, "skip_special_tokens": False},
    "stop string": {"stop": ("b:",)},
    "stop string that never comes": {"stop": ("b;",)},
    "stop string before min_tokens": {"stop": ("b:",), "min_tokens": 9},
    "stop token": {"stop_token_ids": (CRAB[4],)},
    "two choices": {"n": 2},
    "logprobs": {"logprobs": 1},
    "prompt logprobs": {"prompt_logprobs": 1},
    "logprobs to a stop string": {"logprobs": 0, "stop": ("b:",)},
}


@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS)
@pytest.mark.parametrize("items", SCRIPTS.values(), ids=SCRIPTS)
def test_an_output_is_the_same_with_and_without_deltas(items: list[Item], params: dict[str, Any]) -> None:
    def script(request: UserMsg) -> Iterable[Item]:
        return items[: -len(request.input_ids) or None] if len(items) > 8 else items

    assert without_times(gathered(script, **params)) == without_times(taken(script, **params))


def test_text_is_made_once_a_request_where_nobody_looks_for_stop_strings(monkeypatch: pytest.MonkeyPatch) -> None:
    pushes: list[int] = []
    push = TextStream.push
    monkeypatch.setattr(
        TextStream, "push", lambda self, ids, final=False: pushes.append(len(ids)) or push(self, ids, final=final)
    )
    outputs = gathered(lambda request: [*CRAB])
    assert pushes == [len(CRAB)] * 2
    assert [output["text"] for output in outputs] == ["crab: 🦀!"] * 2


def test_the_first_tokens_time_is_that_of_the_first_token() -> None:
    (output,) = gathered(lambda request: [*CRAB[:2], 0.05, *CRAB[2:]], num_prompts=1)
    first, total = output["timings"]["first_token_s"], output["timings"]["total_s"]
    assert first is not None
    assert output["timings"]["queue_s"] == 0.0
    assert total >= first + 0.05


def test_who_gathers_hears_of_the_engines_death() -> None:
    link = ScriptedLink(lambda request: [1000.0])
    submission, arrivals = submit(make_client(lambda request: [], link), 1)
    link.die("struck by lightning")
    with pytest.raises(EngineDied, match="lightning"):
        submission.gather(arrivals.get(timeout=60))


def test_a_reader_of_many_requests_hears_of_a_step_once() -> None:
    router, mine, others = Router(), list[Arrival](), list[Arrival]()
    router.register([1, 2, 3], mine.append)
    router.register([4], others.append)
    replies = [TokenReply(uid, (uid,)) for uid in (3, 4, 1, 5)]
    router.send([*replies])
    assert [arrival.replies for arrival in mine] == [[replies[0], replies[2]]]
    assert [arrival.replies for arrival in others] == [[replies[1]]]


def test_the_next_tokens_of_a_step_go_to_one_reader_as_they_are_and_are_sorted_for_several() -> None:
    router, mine, others = Router(), list[Arrival](), list[Arrival]()
    router.register([1, 2, 3], mine.append)
    router.register([4], others.append)
    alone, mixed = NextTokens([3, 1], [7, 8]), NextTokens([3, 4, 9, 1], [10, 11, 12, 13])
    router.send([alone, NextTokens([9], [5])])
    router.send([mixed])
    assert [arrival.replies for arrival in mine] == [[alone], [TokenReply(3, (10,)), TokenReply(1, (13,))]]
    assert [arrival.replies for arrival in others] == [[TokenReply(4, (11,))]]
    assert list(mine[0].each()) == [TokenReply(3, (7,)), TokenReply(1, (8,))]

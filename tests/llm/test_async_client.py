"""`AsyncClient` over a scripted engine: what its readers see, however slow they are."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future

import numpy as np
import pytest
from support.scripted_link import Item, ScriptedLink, logprob_of, make_engine_client, tokens
from support.tiny_model import EOS, make_tokenizer

from minisgl.core import ContextLengthError, SamplingParams
from minisgl.llm import AsyncClient, Delta, EngineDied, Output
from minisgl.llm.run import Run
from minisgl.message import EngineStats, Question, TreeReply, UserMsg
from minisgl.message.questions import AnswerT
from minisgl.tokenizer import Tokenizer
from minisgl.utils.arrays import Int32Array

TEXT = "héllo wörld, 한글 🦀!"


def says(text: str) -> object:
    return lambda request: [*tokens(text), EOS]


async def read(client: AsyncClient, prompts: list[str], params: SamplingParams) -> list[Delta]:
    prepared = [await client.prepare(prompt, params) for prompt in prompts]
    return [delta async for deltas in client.run(prepared) for delta in deltas]


def join(deltas: list[Delta], index: int = 0, choice: int = 0) -> Output:
    mine = [delta for delta in deltas if (delta["index"], delta["choice"]) == (index, choice)]
    return Output(
        text="".join(delta["text"] for delta in mine),
        token_ids=[token_id for delta in mine for token_id in delta["token_ids"]],
        logprobs=[entry for delta in mine for entry in delta.get("logprobs", [])],
        finish_reason=mine[-1]["finish_reason"] or "error",
    )


@pytest.mark.parametrize("stop", [(), ("wör", "ld"), ("🦀",)])
@pytest.mark.parametrize("tokens_a_step", [1, 3, 50])
def test_joined_deltas_are_the_output_in_text_tokens_and_logprobs(stop: tuple[str, ...], tokens_a_step: int) -> None:
    def script(request: UserMsg) -> Iterable[tuple[int, ...]]:
        ids = [*tokens(TEXT), EOS]
        return [tuple(ids[i : i + tokens_a_step]) for i in range(0, len(ids), tokens_a_step)]

    params = SamplingParams(max_tokens=99, stop=stop, logprobs=2)
    deltas = asyncio.run(read(make_engine_client(script), ["hi"], params))
    output, joined = deltas[-1]["output"], join(deltas)
    assert joined == {key: output[key] for key in joined}  # type: ignore[literal-required]
    assert output["text"] == (TEXT.split(stop[0])[0] if stop else TEXT)
    assert output["logprobs"] == [logprob_of(token_id, 2) for token_id in output["token_ids"]]
    assert output["timings"]["queue_s"] == 0.0


def test_every_delta_says_what_the_prompt_cost() -> None:
    client = make_engine_client(link=ScriptedLink(cached_len=3))
    deltas = asyncio.run(read(client, ["hello"], SamplingParams(max_tokens=4, prompt_logprobs=1)))
    assert {(delta["prompt_tokens"], delta["cached_tokens"]) for delta in deltas} == {(5, 3)}
    assert deltas[0]["queue_s"] == 0.0
    wanted = [None, *(logprob_of(token_id, 1) for token_id in tokens("ello"))]
    assert [delta["prompt_logprobs"] for delta in deltas if "prompt_logprobs" in delta] == [wanted]
    assert "logprobs" not in deltas[0]


def test_what_a_slow_reader_has_not_taken_is_one_delta() -> None:
    async def main() -> None:
        link = ScriptedLink(lambda request: [0.05, *(i % 250 for i in range(5000))])
        client = make_engine_client(link=link)
        params = SamplingParams(max_tokens=5000, ignore_eos=True, logprobs=0)
        run = client.start([await client.prepare("x", params)])
        while link.num_open:
            await asyncio.sleep(0.01)
        lists = [deltas async for deltas in run]
        assert [len(deltas) for deltas in lists] == [1] * len(lists)
        assert len(lists) < 100
        output = lists[-1][-1]["output"]
        joined = join([delta for deltas in lists for delta in deltas])
        assert joined == {key: output[key] for key in joined}  # type: ignore[literal-required]

    asyncio.run(main())


def test_prompts_and_choices_are_kept_apart() -> None:
    client = make_engine_client()
    deltas = asyncio.run(read(client, ["ab", "cde"], SamplingParams(max_tokens=6, n=2)))
    texts = {(i, c): join(deltas, i, c)["text"] for i in range(2) for c in range(2)}
    assert texts == {(0, 0): "ababab", (0, 1): "ababab", (1, 0): "cdecde", (1, 1): "cdecde"}
    assert [len(delta["output"]["choices"]) for delta in deltas if "output" in delta] == [2, 2]


def test_no_prompts_are_over_at_once() -> None:
    assert asyncio.run(read(make_engine_client(), [], SamplingParams())) == []


def test_closing_the_generator_aborts_what_runs() -> None:
    async def main() -> None:
        link = ScriptedLink()
        client = make_engine_client(link=link)
        deltas = client.run([await client.prepare("hi", SamplingParams(max_tokens=10**6, n=3))])
        await anext(deltas)
        await deltas.aclose()
        assert sorted(link.aborted) == [0, 1, 2]
        while link.num_open:
            await asyncio.sleep(0.001)

    asyncio.run(main())


def test_an_aborted_run_is_read_to_its_end() -> None:
    async def main() -> None:
        client = make_engine_client()
        run = client.start([await client.prepare("hi", SamplingParams(max_tokens=10**6))])
        last = (await anext(run))[-1]
        run.abort()
        async for deltas in run:
            last = deltas[-1]
        assert last["finish_reason"] == "abort"
        text = last["output"]["text"]
        assert text
        assert text == ("hi" * len(text))[: len(text)]

    asyncio.run(main())


def test_a_stop_string_is_told_to_the_engine() -> None:
    link = ScriptedLink()
    asyncio.run(read(make_engine_client(link=link), ["abc"], SamplingParams(max_tokens=50, stop="ca")))
    assert link.finished == {0: 4}


def test_skip_special_tokens_is_the_readers_choice() -> None:
    def text(skip: bool) -> str:
        params = SamplingParams(ignore_eos=True, skip_special_tokens=skip)
        return join(asyncio.run(read(make_engine_client(says("a")), ["x"], params)))["text"]  # type: ignore[arg-type]

    assert (text(True), text(False)) == ("a", "a</s>")


def test_no_array_is_made_of_token_ids_that_never_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes a quarter of a second for some millions, in which no other thread runs."""
    monkeypatch.setattr("minisgl.llm.encoder._token_ids", lambda prompt: pytest.fail("an array was made"))
    with pytest.raises(ContextLengthError, match="600 tokens, but the context length is 512"):
        asyncio.run(make_engine_client().prepare([1] * 600, None))


def test_a_failed_request_says_why_and_the_next_one_runs() -> None:
    def script(request: UserMsg) -> Iterable[object]:
        return [*tokens("h"), RuntimeError("NaN in row 3")] if request.uid == 0 else [*tokens("ok"), EOS]

    async def main() -> None:
        client = make_engine_client(script)  # type: ignore[arg-type]
        failed = (await read(client, ["x"], SamplingParams()))[-1]["output"]
        assert (failed["finish_reason"], failed["error"], failed["text"]) == ("error", "NaN in row 3", "h")
        assert join(await read(client, ["x"], SamplingParams()))["text"] == "ok"

    asyncio.run(main())


def test_a_dead_engine_is_told_to_readers_and_to_whoever_comes_later() -> None:
    async def main() -> None:
        link = ScriptedLink()
        client = make_engine_client(link=link)
        deltas = client.run([await client.prepare("hi", SamplingParams(max_tokens=10**6))])
        await anext(deltas)
        link.die("the engine died: killed by signal 9")
        with pytest.raises(EngineDied, match="signal 9"):
            _ = [delta async for delta in deltas]
        with pytest.raises(EngineDied, match="signal 9"):
            await read(client, ["x"], SamplingParams())
        for question in (client.stats, client.flush_cache):
            with pytest.raises(EngineDied, match="signal 9"):
                await question()

    asyncio.run(main())


def test_questions_are_answered() -> None:
    async def main() -> None:
        link = ScriptedLink(stats=EngineStats(num_running=3))
        client = make_engine_client(link=link)
        assert (await client.stats()).num_running == 3
        await client.flush_cache()
        assert [(len(purge.prefix), purge.cache_salt) for purge in link.purges] == [(0, None)]

    asyncio.run(main())


def test_a_salt_goes_with_its_request_and_a_bad_one_is_refused() -> None:
    async def main() -> None:
        link = ScriptedLink()
        client = make_engine_client(link=link)
        chat = await client.prepare_chat([{"role": "user", "content": "x"}], None, {}, cache_salt="tenant")
        prompt = await client.prepare([1, 2], SamplingParams(max_tokens=1), cache_salt="other")
        assert [prepared.cache_salt for prepared in (chat, prompt)] == ["tenant", "other"]
        assert [delta async for delta in client.run([prompt])]
        assert link.requests[0].cache_salt == "other"
        for salt in ("\ud800", "x" * 1025, 3):
            with pytest.raises(ValueError, match="cache_salt"):
                await client.prepare("x", None, cache_salt=salt)  # type: ignore[arg-type]

    asyncio.run(main())


def test_a_prompt_that_is_too_long_is_its_own_kind_of_error() -> None:
    client = make_engine_client()
    for prompt in ("x" * 600, "x" * 10**6, np.zeros(512, np.int32)):
        with pytest.raises(ContextLengthError, match="context length is 512"):
            asyncio.run(client.prepare(prompt, None))


def test_many_readers_of_many_loops_share_one_client() -> None:
    client = make_engine_client()

    async def main() -> list[str]:
        runs = [read(client, [f"{i:02}"], SamplingParams(max_tokens=40)) for i in range(50)]
        return [join(deltas)["text"] for deltas in await asyncio.gather(*runs)]

    for _ in range(2):
        assert asyncio.run(main()) == [f"{i:02}" * 20 for i in range(50)]


def test_a_template_that_writes_far_too_much_is_refused_before_it_is_tokenized(monkeypatch: pytest.MonkeyPatch) -> None:
    client = make_engine_client(tokenizer=Tokenizer(make_tokenizer()))
    client.tokenizer.hf.chat_template = "{{ messages[0].content * 100000 }}"
    monkeypatch.setattr(client.tokenizer, "encode_rendered", lambda text: pytest.fail("it was tokenized"))
    with pytest.raises(ContextLengthError, match="10000000 characters"):
        asyncio.run(client.prepare_chat([{"role": "user", "content": "x" * 100}], None, {}))


def test_a_long_prompt_does_not_keep_the_next_one_waiting() -> None:
    """A tokenizer under one lock would make every client wait for the slowest text."""
    client = make_engine_client(tokenizer=Tokenizer(make_tokenizer()))
    busy, release, encode = threading.Event(), threading.Event(), client.tokenizer.encode

    def slow(text: str) -> Int32Array:
        if text == "long":
            busy.set()
            assert release.wait(60)
        return encode(text)

    async def main() -> None:
        client.tokenizer.encode = slow  # type: ignore[method-assign]
        long = asyncio.create_task(client.prepare("long", None))
        while not busy.is_set():
            await asyncio.sleep(0.001)
        assert len((await client.prepare("next", None)).input_ids) == 4
        release.set()
        await long

    asyncio.run(main())


def test_news_is_offered_while_the_reader_waits_and_what_is_refused_is_the_readers() -> None:
    offered: list[str] = []

    def take_vowels(deltas: list[Delta]) -> bool:
        text = "".join(delta["text"] for delta in deltas)
        offered.append(text)
        return text in "ae"

    def script(request: UserMsg) -> Iterable[Item]:
        for char in "abcde":
            while not (runs and is_waited_for(runs[0])):
                yield 0.005
            yield from tokens(char)
            while char not in offered:
                yield 0.005

    runs: list[Run] = []

    async def main() -> list[str]:
        client = make_engine_client(script)
        runs.append(client.start([await client.prepare("x", SamplingParams())], on_news=take_vowels))
        return [delta["text"] async for deltas in runs[0] for delta in deltas]

    assert asyncio.run(main()) == ["b", "c", "d", ""]
    assert offered == ["a", "b", "c", "d", "e"]  # the end is not offered


def is_waited_for(run: Run) -> bool:
    waiter = run._waiter
    return waiter is not None and not waiter.done()


def test_a_reader_that_is_busy_gets_all_in_order_and_nothing_is_offered_meanwhile() -> None:
    offered: list[str] = []

    def leave_it(deltas: list[Delta]) -> bool:
        offered.extend(delta["text"] for delta in deltas)
        return False

    async def main() -> list[str]:
        link = ScriptedLink(lambda request: [*tokens("a"), *([0.02] * 5), *tokens("bcd")])
        client = make_engine_client(link=link)
        run = client.start([await client.prepare("x", SamplingParams())], on_news=leave_it)
        texts = [delta["text"] for delta in await anext(run)]
        while not run._is_over:
            await asyncio.sleep(0.005)
        return [*texts, *(delta["text"] for delta in await anext(run))]

    assert asyncio.run(main()) == ["a", "bcd"]
    assert offered == ["a"]


def test_a_mistake_with_an_offer_is_the_readers_and_no_neighbours() -> None:
    def fail(deltas: list[Delta]) -> bool:
        raise KeyError("insides")

    async def main() -> None:
        client = make_engine_client(lambda request: [*tokens("a"), 0.1, *tokens("bc"), EOS])
        prepared = [await client.prepare("x", SamplingParams())]
        neighbour = asyncio.create_task(read(client, ["x"], SamplingParams()))
        with pytest.raises(KeyError, match="insides"):
            await anext(client.run(prepared, on_news=fail))
        assert join(await neighbour)["text"] == "abc"

    asyncio.run(main())


def test_what_comes_after_the_loop_has_closed_is_not_kept() -> None:
    link = ScriptedLink(lambda request: [*tokens("a"), 0.1, *tokens("bcd")])
    client = make_engine_client(link=link)

    async def main() -> None:
        await anext(client.start([await client.prepare("x", SamplingParams())]))  # and it is never closed

    asyncio.run(main())
    while link.num_open:
        time.sleep(0.01)
    assert client._mail is not None
    assert client._mail._arrived == []


def test_who_stops_waiting_for_a_tree_leaves_no_work_behind() -> None:
    class SilentLink(ScriptedLink):
        def ask(self, question: Question[AnswerT]) -> Future[AnswerT]:
            self.asked_uid = question.uid
            return self._router.expect(question)

        def answer_late(self) -> None:
            self._router.send([TreeReply(self.asked_uid, None)])

    async def main() -> None:
        link = SilentLink()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await make_engine_client(link=link).tree(None, 100, 0)
        assert link.aborted == [link.asked_uid]
        link.answer_late()

    asyncio.run(main())

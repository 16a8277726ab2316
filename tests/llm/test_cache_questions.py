"""Asking what is cached, forgetting it, and who goes first: on a tiny random model."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minisgl import LLM, AsyncLLM, SamplingParams
from minisgl.llm.client import Probe
from minisgl.llm.router import EngineDied, Router
from minisgl.message import StatsMsg

TEXT = "One two three four five six"
CHAT = [{"role": "user", "content": "Hi you"}]
ONE = SamplingParams(max_tokens=1, ignore_eos=True)


def cached(llm: LLM, prompt: Any, **salt: str) -> int:
    return llm.generate(prompt, ONE, **salt)[0]["cached_tokens"]


def test_a_probe_foretells_what_a_request_finds(llm: LLM) -> None:
    assert llm.probe(TEXT) == Probe(len(TEXT), 0)
    llm.generate(TEXT, ONE)
    longer = f"{TEXT} seven"
    for prompt in (TEXT, longer, TEXT[:9], "Another", llm.tokenizer(longer).input_ids, np.array([1, 2, 3])):
        probe = llm.probe(prompt)
        out = llm.generate(prompt, ONE)[0]
        assert probe == (out["prompt_tokens"], out["cached_tokens"])
    assert llm.probe(longer).cached_tokens == len(longer) - 1


def test_a_chat_is_probed_as_its_template_writes_it(llm: LLM) -> None:
    out = llm.chat(CHAT, ONE)
    assert llm.probe_chat(CHAT) == (out["prompt_tokens"], out["prompt_tokens"] - 1)
    assert llm.probe_chat(CHAT, add_generation_prompt=False).prompt_tokens == out["prompt_tokens"] - 1


def test_a_probe_sees_only_its_own_salt(llm: LLM) -> None:
    llm.generate(TEXT, ONE, cache_salt="a")
    llm.chat(CHAT, ONE, cache_salt="a")
    found = [(llm.probe(TEXT, cache_salt=salt)[1], llm.probe_chat(CHAT, cache_salt=salt)[1]) for salt in ("a", "", "b")]
    assert (found[0][0] > 0, found[0][1] > 0) == (True, True)
    assert found[1:] == [(0, 0), (0, 0)]


def test_a_probe_keeps_nothing_longer(tiny: Path) -> None:
    with LLM(str(tiny), num_page_override=40) as llm:
        for prompt in ("a" * 15, "b" * 15):
            llm.generate(prompt, ONE)
        for _ in range(3):
            assert llm.probe("a" * 15).cached_tokens == 14
        llm.generate("c" * 25, ONE)
        assert [llm.probe(letter * 15).cached_tokens for letter in "abc"] == [0, 14, 14]


@pytest.mark.parametrize("prompt", ["", [], [300], [-1], [[1]], "x" * 513])
def test_what_can_never_run_is_not_probed(llm: LLM, prompt: Any) -> None:
    with pytest.raises(ValueError, match=r"prompt|token id"):
        llm.probe(prompt)


def test_a_naive_cache_finds_nothing_and_purges_nothing(tiny: Path) -> None:
    with LLM(str(tiny), num_page_override=256, cache_type="naive") as llm:
        llm.generate(TEXT, ONE)
        assert llm.probe(TEXT) == (len(TEXT), 0)
        assert llm.purge_cache() == 0


def test_a_prefix_is_purged_and_others_stay(llm: LLM) -> None:
    others = ["One two four", "Two three"]
    llm.generate([TEXT, *others], ONE)
    freed = llm.purge_cache("One two three four")
    assert freed == len(TEXT) - len("One two ")
    assert cached(llm, TEXT) == len("One two ")
    assert [cached(llm, other) for other in others] == [len(other) - 1 for other in others]


def test_all_prompts_that_go_on_where_a_text_ends_are_purged(llm: LLM) -> None:
    texts = ["Say this", "Say thisand", "Say this and", "Say this, and", "Say this\n"]
    llm.generate(texts, ONE)
    llm.purge_cache("Say this")
    assert max(llm.probe(text).cached_tokens for text in texts) <= len("Say")


def test_a_salt_is_purged_alone_and_everything_at_once(llm: LLM) -> None:
    def found() -> list[bool]:
        return [llm.probe(TEXT, cache_salt=salt).cached_tokens > 0 for salt in ("", "a", "b")]

    for salt in ("", "a", "b"):
        llm.generate(TEXT, ONE, cache_salt=salt)
    assert llm.purge_cache(cache_salt="a") == len(TEXT)
    assert found() == [True, False, True]
    llm.purge_cache()
    assert found() == [False, False, True]
    llm.generate([TEXT, "Two"], ONE)
    llm.purge_cache("One two three", cache_salt=None)
    assert found() == [False] * 3
    assert llm.probe("Two").cached_tokens == 2
    llm.purge_cache(cache_salt=None)
    assert llm.probe("Two").cached_tokens == 0


def test_a_running_request_survives_a_purge_and_stores_nothing(llm: LLM) -> None:
    params = SamplingParams(max_tokens=16, ignore_eos=True)
    alone = llm.generate(TEXT, params)[0]["token_ids"]
    deltas = llm.generate(TEXT, params, stream=True)
    first = next(deltas)
    llm.purge_cache()
    assert [*first["token_ids"], *(token for delta in deltas for token in delta["token_ids"])] == alone
    assert llm.probe(TEXT).cached_tokens == 0
    assert llm.cache_manager.num_free_pages == 2048


@pytest.mark.parametrize(
    ("prefix", "message"), [("", "one word"), ("One", "one word"), ([], "empty prefix"), ([300], "300")]
)
def test_a_prefix_that_says_nothing_purges_nothing(llm: LLM, prefix: Any, message: str) -> None:
    llm.generate(TEXT, ONE)
    with pytest.raises(ValueError, match=message):
        llm.purge_cache(prefix)
    assert llm.probe(TEXT).cached_tokens == len(TEXT) - 1


def test_salts_that_are_none_are_refused_everywhere(llm: LLM) -> None:
    for call in (llm.probe, llm.generate):
        with pytest.raises(ValueError, match="cache_salt"):
            call(TEXT, cache_salt="x" * 1025)
    with pytest.raises(ValueError, match="cache_salt"):
        llm.purge_cache(cache_salt="\ud800")


def test_the_larger_priority_is_served_first(tiny: Path) -> None:
    """All wait behind one that takes the only row."""
    with LLM(str(tiny), num_page_override=256, max_running_req=1, policy="priority") as llm:
        ends: list[str] = []

        async def ask(client: Any, priority: int, max_tokens: int) -> None:
            params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
            prepared = await client.prepare(f"prompt {priority}", params, priority=priority)
            async for _ in client.run([prepared]):
                pass
            ends.append(str(priority))

        async def main() -> None:
            from minisgl.llm import AsyncClient

            client = AsyncClient(llm.client)
            first = asyncio.ensure_future(ask(client, 0, 30))
            while not (await client.stats()).num_running:
                pass
            await asyncio.gather(first, *(ask(client, priority, 1) for priority in (-5, 1, 9, 3)))

        asyncio.run(main())
        assert ends == ["0", "9", "3", "1", "-5"]


def test_what_had_a_larger_priority_is_kept_longer(tiny: Path) -> None:
    with LLM(str(tiny), num_page_override=40, eviction="priority") as llm:
        llm.generate("a" * 15, ONE, priority=3)
        for letter in "bcd":
            llm.generate(letter * 15, ONE)
        assert llm.probe("a" * 15).cached_tokens == 14


def test_a_priority_is_refused_where_it_would_change_nothing(llm: LLM) -> None:
    assert llm.generate("x", ONE, priority=0)
    for call in (lambda: llm.generate("x", ONE, priority=1), lambda: llm.chat(CHAT, ONE, priority=-1)):
        with pytest.raises(ValueError, match="--policy priority or --eviction priority"):
            call()


@pytest.mark.parametrize("priority", [2**31, -(2**31) - 1, 1.5, "1", True])
def test_a_priority_is_an_integer_of_32_bits(llm: LLM, priority: Any) -> None:
    with pytest.raises(ValueError, match="32 bits"):
        llm.generate("x", ONE, priority=priority)


def test_asyncio_programs_ask_the_same_questions(tiny: Path) -> None:
    async def main() -> None:
        async with AsyncLLM(str(tiny), num_page_override=512, policy="priority") as llm:
            await llm.generate(TEXT, ONE, cache_salt="a", priority=2)
            await llm.chat(CHAT, ONE, cache_salt="a", priority=2)
            assert await llm.client.probe(TEXT, cache_salt="a") == (len(TEXT), len(TEXT) - 1)
            probe = await llm.client.probe_chat(CHAT, {}, cache_salt="a")
            assert probe.cached_tokens == probe.prompt_tokens - 1
            assert await llm.client.purge_chat(CHAT, {}, cache_salt="a") > 0
            assert await llm.client.purge_cache("One two", cache_salt="a") > 0
            assert (await llm.client.probe_chat(CHAT, {}, cache_salt="a")).cached_tokens == 0
            assert await llm.client.purge_cache(cache_salt="a") == 0

    asyncio.run(main())


def test_a_question_that_is_open_when_the_engine_ends_gets_the_reason() -> None:
    router = Router()
    answer = router.expect(StatsMsg(1))
    router.close("the engine died: no more power")
    with pytest.raises(EngineDied, match="no more power"):
        answer.result(timeout=60)


def test_the_tree_is_drawn_who_uses_a_node_is_told_and_a_prompt_is_found(llm: LLM) -> None:
    llm.generate(TEXT, ONE)
    llm.generate(f"{TEXT[:9]}else", ONE, cache_salt="a")
    client = llm.client
    picture = client.ask(client.tree_question(None, 100, 4)).result()
    assert picture is not None
    assert (picture.num_tokens, picture.num_namespaces, picture.salts) == (len(TEXT) + 13, 2, ["", "a"])
    ids = np.array(llm.tokenizer(TEXT).input_ids, np.int32)
    path = client.ask_path(ids).result()
    assert (path.ids, path.matched_tokens) == (picture.ids[:2], len(TEXT) - 1)
    use = client.ask(client.node_question(path.ids[-1], 3)).result()
    assert use is not None
    assert (use.path_tokens, use.users, use.tail.tolist()) == (len(TEXT), [], ids[-3:].tolist())
    assert client.ask(client.node_question(10**6, 3)).result() is None
    assert client.ask(client.tree_question(10**6, 1, 0)).result() is None


@pytest.mark.parametrize("max_nodes", [0, 5001])
def test_a_picture_of_too_many_nodes_or_none_is_refused(llm: LLM, max_nodes: int) -> None:
    with pytest.raises(ValueError, match=f"max_nodes={max_nodes} is not between 1 and 5000"):
        llm.client.tree_question(None, max_nodes, 0)

"""An engine in its own process: the same answers as in this one, and what happens when somebody dies."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import stat
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from minisgl import LLM, SamplingParams
from minisgl.llm import AsyncClient, Delta, EngineDied, LLMConfig, Output, RemoteEngine

SHORT = SamplingParams(max_tokens=8, ignore_eos=True, logprobs=1)
LONG = SamplingParams(max_tokens=400, ignore_eos=True)
SLOW = SamplingParams(max_tokens=400, ignore_eos=True, n=20)


def config_of(folder: Path, **config: object) -> LLMConfig:
    return LLMConfig.from_kwargs(model=str(folder), **{"num_page_override": 16384, "device": "cpu", **config})


@pytest.fixture(scope="module")
def engine(tiny: Path) -> Iterator[RemoteEngine]:
    engine = RemoteEngine(config_of(tiny))
    yield engine
    engine.shutdown()


@pytest.fixture(scope="module")
def client(engine: RemoteEngine) -> AsyncClient:
    return AsyncClient(engine.connect())


async def read(client: AsyncClient, prompts: list[str], params: SamplingParams, salt: str = "") -> list[Output]:
    prepared = [await client.prepare(prompt, params, cache_salt=salt) for prompt in prompts]
    deltas: list[Delta] = [delta async for deltas in client.run(prepared) for delta in deltas]
    outputs = {delta["index"]: delta["output"] for delta in deltas if "output" in delta}
    return [outputs[i] for i in range(len(prompts))]


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    """A zombie, which only waits for its parent to look at it, is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_answers_are_those_of_an_engine_in_this_process(client: AsyncClient, tiny: Path) -> None:
    prompts = [f"prompt {i}" for i in range(6)]
    remote = asyncio.run(read(client, prompts, SHORT))
    with LLM(str(tiny), num_page_override=2048, device="cpu") as llm:
        local = llm.generate(prompts, SHORT)
    keys = ("text", "token_ids", "finish_reason", "prompt_tokens")
    assert [[out[key] for key in keys] for out in remote] == [[out[key] for key in keys] for out in local]  # type: ignore[literal-required]
    for ours, theirs in zip(remote, local, strict=True):
        assert [entry.token_id for entry in ours["logprobs"]] == [entry.token_id for entry in theirs["logprobs"]]


def test_it_says_what_it_became(engine: RemoteEngine, tiny: Path) -> None:
    info = engine.ready.result()
    assert (info.model, info.vocab_size, info.max_seq_len, info.num_pages) == (str(tiny), 300, 512, 16384)
    assert (info.pid, info.end_token_ids, info.device) == (engine.pid, (257,), "cpu")
    assert "torch" in info.versions


def test_it_has_one_client_however_often_it_is_asked(engine: RemoteEngine, client: AsyncClient) -> None:
    assert engine.connect() is client.client


def test_its_sockets_are_private_and_have_no_names_once_they_are_connected(tiny: Path) -> None:
    engine = RemoteEngine(config_of(tiny))
    assert stat.S_IMODE(engine._child.folder.stat().st_mode) == 0o700
    engine.ready.result()
    assert not engine._child.folder.exists()
    engine.shutdown()


def test_salts_flush_and_statistics_reach_it(client: AsyncClient) -> None:
    async def main() -> list[int]:
        await client.flush_cache()
        found = []
        for salt, flush in (("", False), ("", False), ("a", False), ("a", False), ("", True), ("", False)):
            if flush:
                await client.flush_cache()
            found += [out["cached_tokens"] for out in await read(client, ["the same prompt"], SHORT, salt)]
        return found

    assert asyncio.run(main()) == [0, 14, 0, 14, 0, 14]


def test_probes_and_purges_reach_it_and_priorities_are_refused_as_here(client: AsyncClient) -> None:
    async def main() -> None:
        await client.flush_cache()
        await read(client, ["the same prompt"], SHORT, "a")
        assert await client.probe("the same prompt and more", cache_salt="a") == (24, 15)
        assert await client.purge_cache("the different", cache_salt="a") == 22
        assert await client.probe("the same prompt", cache_salt="a") == (15, 0)
        with pytest.raises(ValueError, match="--policy priority"):
            await client.prepare("x", SHORT, priority=1)

    asyncio.run(main())


def test_priorities_are_taken_where_its_policy_heeds_them(tiny: Path) -> None:
    engine = RemoteEngine(
        config_of(tiny, eviction="priority", policy="lpm", lookahead=3, max_overtakes=5, reserve="full")
    )
    info, client = engine.ready.result(), engine.connect()
    shown = (info.eviction, info.policy, info.lookahead, info.max_overtakes, info.reserve)
    assert shown == ("priority", "lpm", 3, 5, "full")
    assert client.prepare("x", SHORT, priority=-7).priority == -7
    engine.shutdown()


def test_a_reader_that_leaves_gives_its_pages_back(client: AsyncClient) -> None:
    async def main() -> None:
        deltas = client.run([await client.prepare("hello", LONG)])
        await anext(deltas)
        await deltas.aclose()
        stats = await asyncio.wrap_future(client.client.ask_stats(recount=True))
        while stats.num_running:
            stats = await asyncio.wrap_future(client.client.ask_stats(recount=True))
        assert stats.free_pages + stats.evictable_tokens == 16384

    asyncio.run(main())


def test_readers_that_leave_at_any_moment_leave_nothing_behind(engine: RemoteEngine, client: AsyncClient) -> None:
    """Queued, in prefill, while tokens come, after a stop string; with salts, and a flush now and then."""
    rng = random.Random(5)

    async def one(number: int) -> None:
        params = SamplingParams(max_tokens=rng.randint(1, 40), n=rng.choice([1, 1, 3]), stop=rng.choice([(), ("e",)]))
        prompt = "x" * rng.randint(1, 300)
        deltas = client.run([await client.prepare(prompt, params, cache_salt=rng.choice(["", "a", "b"]))])
        async with contextlib.aclosing(deltas):
            for _ in range(rng.randint(0, 30)):
                if await anext(deltas, None) is None:
                    break
        if number % 20 == 0:
            await client.flush_cache()

    async def main() -> None:
        for first in range(0, 200, 40):
            await asyncio.gather(*(one(number) for number in range(first, first + 40)))
        stats = await asyncio.wrap_future(client.client.ask_stats(recount=True))
        while stats.num_running + stats.num_waiting:
            stats = await asyncio.wrap_future(client.client.ask_stats(recount=True))
        assert stats.free_pages + stats.evictable_tokens == 16384
        await client.flush_cache()
        assert (await client.stats()).free_pages == 16384

    asyncio.run(main())
    assert not engine._router._sinks


@contextlib.contextmanager
def held_up(engine: RemoteEngine) -> Iterator[None]:
    """As by a very long step."""
    os.kill(engine.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(engine.pid, signal.SIGCONT)


def test_readers_that_come_and_leave_during_a_long_step_fill_no_memory(
    engine: RemoteEngine, client: AsyncClient
) -> None:
    async def main() -> None:
        prepared = [await client.prepare("hello", LONG)]
        with held_up(engine):
            for _ in range(3000):
                client.start(prepared).close()
            assert engine._sender.num_kept <= 2
            late = client.start(prepared)
            late.abort()
            assert [delta["finish_reason"] for deltas in [await anext(late)] for delta in deltas] == ["abort"]
        stats = await client.stats()
        while stats.num_running + stats.num_waiting:
            stats = await client.stats()

    asyncio.run(main())
    assert not engine._router._sinks


def test_signals_for_the_parent_do_not_end_it(engine: RemoteEngine, client: AsyncClient) -> None:
    """Ctrl-C in a terminal, or a supervisor that signals the whole group."""
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(engine.pid, number)
    assert asyncio.run(read(client, ["still there"], SHORT))[0]["finish_reason"] == "length"


def test_kill_9_gives_every_open_stream_an_error_and_refuses_what_comes(tiny: Path) -> None:
    deaths: list[tuple[str, float]] = []
    stages: list[str] = []
    engine = RemoteEngine(
        config_of(tiny),
        on_progress=stages.append,
        on_death=lambda reason: deaths.append((reason, time.monotonic())),
    )

    async def main(client: AsyncClient) -> list[str]:
        started = asyncio.Semaphore(0)

        async def one() -> None:
            async for _ in client.run([await client.prepare("hello", SLOW)]):
                started.release()

        tasks = [asyncio.create_task(one()) for _ in range(20)]
        await started.acquire()
        os.kill(engine.pid, signal.SIGKILL)
        return [str(error) for error in await asyncio.gather(*tasks, return_exceptions=True)]

    client = AsyncClient(engine.connect())
    assert asyncio.run(main(client)) == ["the engine died: killed by SIGKILL"] * 20
    wait_for(lambda: bool(deaths))
    assert deaths[0][0] == "the engine died: killed by SIGKILL"
    assert stages == ["model files", "config and tokenizer", "weights and KV pool"]
    with pytest.raises(EngineDied, match="SIGKILL"):
        asyncio.run(read(client, ["x"], SHORT))
    with pytest.raises(EngineDied, match="SIGKILL"):
        asyncio.run(client.stats())
    assert not engine._child.folder.exists()
    engine.shutdown()


def test_a_temporary_folder_too_long_for_sockets_is_a_value_error_and_stays_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    with pytest.raises(ValueError, match=rf"{long}.* bytes, but this system allows"):
        RemoteEngine(config_of(tmp_path))
    assert not list(long.iterdir())


def test_the_sockets_folder_is_made_when_the_process_that_removes_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that none stays behind, whenever the parent is killed. Without a process there is nothing to start with."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def start(command: list[str], **options: object) -> None:
        assert not Path(command[-1]).exists()
        raise BlockingIOError("no more processes")

    monkeypatch.setattr("subprocess.Popen", start)
    with pytest.raises(BlockingIOError, match="no more processes"):
        RemoteEngine(config_of(tmp_path))
    assert not list(tmp_path.iterdir())


def test_a_wrong_model_is_a_value_error_in_the_engines_own_words(tmp_path: Path) -> None:
    deaths: list[str] = []
    engine = RemoteEngine(config_of(tmp_path / "nothing"), on_death=deaths.append)
    with pytest.raises(ValueError, match="nothing"):
        engine.connect()
    wait_for(lambda: bool(deaths))
    assert "nothing" in deaths[0]
    assert not engine._thread.is_alive() or engine._child.process.returncode == 1
    engine.shutdown()


def test_shutdown_while_loading_leaves_no_process(tiny: Path) -> None:
    engine = RemoteEngine(config_of(tiny))
    pid = engine.pid
    engine.shutdown()
    assert not is_alive(pid)
    with pytest.raises(EngineDied, match="the engine was shut down"):
        engine.ready.result()


def test_shutdown_aborts_what_runs_and_the_process_ends_by_itself(tiny: Path) -> None:
    engine = RemoteEngine(config_of(tiny), on_death=lambda reason: pytest.fail(reason))
    client = AsyncClient(engine.connect())

    async def main() -> list[str]:
        runs = client.run([await client.prepare("hello", LONG) for _ in range(5)])
        reasons = [delta["finish_reason"] for delta in await anext(runs)]
        threading.Thread(target=engine.shutdown, args=(60,)).start()
        reasons += [delta["finish_reason"] async for deltas in runs for delta in deltas]
        return [reason for reason in reasons if reason is not None]

    assert asyncio.run(main()) == ["abort"] * 5
    engine.shutdown()
    assert engine._child.process.returncode == 0
    with pytest.raises(EngineDied, match="the engine was shut down"):
        asyncio.run(read(client, ["x"], SHORT))


@pytest.mark.parametrize("how", ["killed at once", "killed", "forgetful"])
def test_neither_engine_nor_sockets_outlive_the_parent(tiny: Path, tmp_path: Path, how: str) -> None:
    """Neither of one that is killed, nor of one that ends without a word while requests run."""
    program = textwrap.dedent(f"""
        import asyncio, sys, time
        from minisgl import SamplingParams
        from minisgl.llm import AsyncClient, LLMConfig, RemoteEngine

        async def main():
            engine = RemoteEngine(LLMConfig.from_kwargs(model={str(tiny)!r}, num_page_override=16384, device="cpu"))
            if {how!r} == "killed at once":
                print(engine.pid, flush=True)
                time.sleep(60)
            client = AsyncClient(engine.connect())
            params = SamplingParams(max_tokens=400, n=20, ignore_eos=True)
            deltas = client.run([await client.prepare("hello", params)])
            await anext(deltas)
            print(engine.pid, flush=True)
            if {how!r} == "killed":
                time.sleep(60)

        asyncio.run(main())
    """)
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=tmp_path, env=environ)
    assert parent.stdout is not None
    with parent, parent.stdout:
        pid = int(parent.stdout.readline())
        if how != "forgetful":
            parent.kill()
        parent.wait(timeout=60)
        wait_for(lambda: not is_alive(pid))
    assert not list(tmp_path.glob("minisgl-*"))

"""Random schedules through the real engine: arrivals, aborts, stops, flushes, pages that run out, graphs and overlap.

As the ones over the KV oracle (tests/scheduler/test_random_schedules.py), but K and V are real: every text must be, or
begin, the one that the request gets alone. In float32, so that no rounding excuses a difference.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support.devices import graphs_for, require_backend, share_eagerly
from support.rounded_model import make_llama_64
from support.serving import Serving, StingyReserve

from minisgl import LLM, SamplingParams
from minisgl.env import ENV
from minisgl.llm.assembly import Parts, assemble
from minisgl.llm.config import LLMConfig
from minisgl.scheduler.loop import Loop
from minisgl.scheduler.reserve import RESERVES

POOL, LONGEST = 160, 24
NUM_STEPS = {"cpu": 60, "cuda": 150}
NUM_BATCHED = 12  # requests that may run together; three times the largest graph


class DeviceServing(Serving):
    """A `Serving` whose batches are computed by a real engine."""

    def __init__(self, parts: Parts) -> None:
        super().__init__()
        self.parts = parts
        self.scheduler, self.manager = parts.scheduler, parts.scheduler.cache_manager
        self.loop = Loop(parts.scheduler, parts.engine.forward, self.inbox, self.outbox, parts.overlap)


class Play:
    """One random run. aborted, cut: requests that were not let finish."""

    def __init__(self, serving: Serving, seed: int) -> None:
        self.serving, self.rng = serving, random.Random(seed)
        self.aborted: set[int] = set()
        self.cut: set[int] = set()

    def run(self, num_steps: int) -> None:
        chances = [(0.6, self.arrive), (0.12, self.abort), (0.12, self.stop), (0.03, self.serving.flush)]
        for _ in range(num_steps):
            for chance, act in chances:
                if self.rng.random() < chance:
                    act()
            self.serving.step()
        self.serving.run()

    def arrive(self) -> None:
        """One to three requests, most of which begin as an earlier one did."""
        prompts = list(self.serving.prompts.values())
        for _ in range(self.rng.choice([1, 1, 3])):
            old = self.rng.choice(prompts) if prompts and self.rng.random() < 0.7 else []
            own = [self.rng.randrange(250) for _ in range(self.rng.randint(1, 30))]
            self.serving.submit((old[: self.rng.randint(0, len(old))] + own)[:120], self.rng.randint(1, LONGEST))

    def abort(self) -> None:
        if running := self._unfinished():
            uid = self.rng.choice(running)
            self.aborted.add(uid)
            self.serving.abort(uid)

    def stop(self) -> None:
        """As the finder of a stop string does."""
        if running := [uid for uid in self._unfinished() if self.serving.tokens[uid]]:
            uid = self.rng.choice(running)
            self.cut.add(uid)
            self.serving.finish(uid, len(self.serving.tokens[uid]))

    def _unfinished(self) -> list[int]:
        serving = self.serving
        return [u for u in serving.prompts if u not in serving.finished and u not in self.aborted | self.cut]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_llama_64(tmp_path_factory.mktemp("llama-64"))


@pytest.fixture
def _run_dry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is reserved for what will be generated, and all pages are recounted after each commit."""
    monkeypatch.setitem(RESERVES, "estimate", StingyReserve)
    monkeypatch.setattr(ENV.CHECK_INTEGRITY, "value", True)


def alone(folder: Path, device: str, backend: str, serving: Serving) -> dict[int, list[int]]:
    """What each request is told when there is no other, no cache and no graph. uid -> tokens."""
    with LLM(
        str(folder),
        device=device,
        dtype="float32",
        attention_backend=backend,
        cache_type="naive",
        max_running_req=1,
        max_seq_len_override=256,
        num_page_override=512,
        **graphs_for(backend, 0),
    ) as llm:
        params = [SamplingParams(max_tokens=params.max_tokens) for params in serving.params.values()]
        outputs = llm.generate(list(serving.prompts.values()), params)
    return {uid: output["token_ids"] for uid, output in zip(serving.prompts, outputs, strict=True)}


@pytest.mark.usefixtures("_run_dry")
@pytest.mark.parametrize(
    ("device", "backend", "page_size", "overlap", "chunk"),
    [
        ("cpu", "torch", 1, "on", 24),
        ("cpu", "torch", 16, "off", 512),
        *(
            pytest.param("cuda", backend, *switches, marks=pytest.mark.gpu)
            for backend in ("torch", "triton")
            for switches in [(1, "on", 24), (4, "on", 512), (16, "on", 24), (16, "off", 512)]
        ),
    ],
)
def test_every_request_is_answered_as_if_it_were_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch, device: str, backend: str, page_size: int, overlap: str, chunk: int
) -> None:
    require_backend(backend, "float32")
    share_eagerly(monkeypatch)
    parts = assemble(
        LLMConfig.from_kwargs(
            model=str(folder),
            device=device,
            dtype="float32",
            attention_backend=backend,
            page_size=page_size,
            num_page_override=POOL // page_size + 1,
            max_running_req=NUM_BATCHED,
            max_seq_len_override=192,
            max_extend_tokens=chunk,
            overlap=overlap,
            **graphs_for(backend, NUM_BATCHED // 3),
        ),
        folder,
    )
    serving = DeviceServing(parts)
    play = Play(serving, seed=page_size)
    play.run(NUM_STEPS[device])
    assert parts.scheduler.stats().num_retracted >= 3, "pages never ran out, so that this tests less than it says"
    assert len(play.aborted) >= 3
    assert len(play.cut) >= 3
    for uid, wanted in alone(folder, device, backend, serving).items():
        got, last = serving.tokens[uid], serving.finished.get(uid)
        assert got == wanted[: len(got)], f"uid {uid}"
        if uid not in play.cut:  # whose readers have left
            assert last is not None, f"uid {uid} was never answered"
            assert last.finish_reason in (("abort", "length", "stop") if uid in play.aborted else ("length", "stop"))
            assert last.finish_reason == "abort" or got == wanted, f"uid {uid} ended early"

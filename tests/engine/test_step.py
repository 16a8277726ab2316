"""Decode steps as graphs, of which a replay computes anew what was captured: by Triton's interpreter, or on a GPU."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from msgspec import structs
from support.dense_attention import make_model, read_json, tiny_weights
from support.devices import share_eagerly

from minisgl.attention import AttnConfig, create_attention_backend, triton_backend
from minisgl.core import Batch, Context, PageTableUpdate, PrefixGroup, Req, SamplingParams
from minisgl.engine import step as step_module
from minisgl.engine.engine import attn_form
from minisgl.engine.graphs import NO_UPDATE, Captured, GraphPool, Key
from minisgl.engine.inputs import PageTable
from minisgl.engine.sampler import Sampler
from minisgl.engine.staging import BufferStaging, HostStaging
from minisgl.engine.step import Decoded, Step
from minisgl.kernel import triton
from minisgl.kvcache.pool import MHAKVCache

if importlib.util.find_spec("triton") is not None:
    from support import interpreted

    interpreted.prepare()

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
PAGE_SIZE, NUM_PAGES, MAX_LEN = 4, 129, 64


class Recomputing(GraphPool):
    """Keeps what was captured as a function; it reads and writes the same memory each time, as a graph does."""

    def _run(self, key: Key, compute: Callable[[], object]) -> None:
        compute()

    def _record(self, compute: Callable[[], object]) -> Captured:
        return Captured(compute, None)

    def replay(self, key: Key) -> object:
        return self._captured[key].graph()


@pytest.fixture
def by_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton, "can_take", lambda x: True)
    monkeypatch.setattr(step_module, "GraphPool", Recomputing)
    monkeypatch.setattr(step_module, "make_staging", lambda device: BufferStaging(1 << 18, device))


def leave_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `by_kernels` did, undone: torch computes what the kernels gave, on the same device."""
    monkeypatch.setattr(triton, "can_take", lambda x: False)
    if DEVICE.type == "cpu":
        monkeypatch.setattr(step_module, "make_staging", lambda device: HostStaging())


def make_step(backend: str, windows: tuple[int, ...] = (0, 0)) -> Step:
    """windows: of the model's two layers."""
    folder = "qwen3_qk_norm"
    model = make_model(read_json(folder, "config.json"), tiny_weights(folder).items(), device=DEVICE)
    config = model.config
    pool = MHAKVCache(
        config.num_kv_heads, config.num_layers, config.head_dim, NUM_PAGES, PAGE_SIZE, torch.float32, DEVICE
    )
    for layer_id in range(config.num_layers):
        pool.k_cache(layer_id).normal_(generator=torch.Generator(DEVICE).manual_seed(layer_id))
        pool.v_cache(layer_id).normal_(generator=torch.Generator(DEVICE).manual_seed(99 + layer_id))
    table = PageTable(8, MAX_LEN // PAGE_SIZE, PAGE_SIZE, DEVICE)
    attn = AttnConfig(
        kv_pool=pool,
        page_table=table.device,
        host_table=table.host,
        page_size=PAGE_SIZE,
        num_qo_heads=config.num_qo_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        form=replace(attn_form(config), windows=windows),
        max_running_req=8,
    )
    ctx = Context(page_size=PAGE_SIZE, kv_pool=pool, attn_backend=create_attention_backend(backend, attn))
    return Step(model, table, ctx, Sampler(config.vocab_size, DEVICE))


def decodes(step: Step, lengths: list[int], prev_rows: list[int] | None = None, shared: int = 0) -> Batch:
    """One token each, after what the pool holds for the rows; the first `shared` tokens of all lie in row 0's pages."""
    cells = [(row, col, shared_or_own(row, col, shared)) for row, n in enumerate(lengths) for col in range(-(-n // 4))]
    update = PageTableUpdate(*np.array(cells, np.int32).T)
    step._page_table.apply(update)
    rows = range(len(lengths))
    reqs = tuple(
        Req(row, row, n - 1, n, n + 9, n, np.arange(n, dtype=np.int32) + 3, SamplingParams(), prev_row=prev)
        for row, n, prev in zip(rows, lengths, prev_rows or [-1] * len(lengths), strict=True)
    )
    groups = (PrefixGroup(np.array(rows, np.int32), 0, shared),) if shared else ()
    return Batch(reqs, update, step=0, groups=groups)


def logits_of(step: Step, decoded: Decoded) -> torch.Tensor:
    return step._model.compute_logits(decoded.hidden)


def mixed(step: Step, lengths: list[int], cached: list[int], shared: int = 0) -> Batch:
    """As `decodes`, but row i computes all tokens behind the first cached[i]."""
    batch = decodes(step, lengths, shared=shared)
    reqs = tuple(structs.replace(req, cached_len=n) for req, n in zip(batch.reqs, cached, strict=True))
    return Batch(reqs, batch.page_table_update, step=0, groups=batch.groups)


def shared_or_own(row: int, col: int, shared: int) -> int:
    return 1 + col if col < shared // PAGE_SIZE else 1 + row * 16 + col


@torch.inference_mode()
def by_torch(lengths: list[int], shared: int, windows: tuple[int, ...]) -> tuple[torch.Tensor, list[int]]:
    """Logits and best tokens, from the torch backend, call by call."""
    step = make_step("torch", windows)
    staged = step.stage(decodes(step, lengths, shared=shared))
    logits = step._model.compute_logits(step.run(staged))
    return logits, logits.argmax(-1).tolist()


@pytest.mark.usefixtures("by_kernels")
@pytest.mark.parametrize(
    ("lengths", "shared", "windows"),
    [
        *(([5], 0, windows) for windows in [(0, 0), (10, 10)]),
        *(([30, 7, 16], 0, windows) for windows in [(10, 0), (40, 6)]),
        *(([30, 25, 28, 26], 24, windows) for windows in [(0, 0), (10, 0), (10, 10), (40, 6)]),
    ],
)
def test_a_replayed_step_gives_the_logits_and_tokens_of_torch(
    monkeypatch: pytest.MonkeyPatch, lengths: list[int], shared: int, windows: tuple[int, ...]
) -> None:
    """The graph is captured with rows of one token, and with rows of MAX_LEN that share where any layer lets them."""
    share_eagerly(monkeypatch)
    step = make_step("triton", windows)
    with torch.inference_mode():
        step.capture([1, 4], MAX_LEN)
        decoded = step.replay(decodes(step, lengths, shared=shared))
    assert decoded is not None
    assert sorted(key[:2] for key in step._graphs._captured) == [
        *((1, False), (4, False)),
        *([(4, True)] if 0 in windows else []),
    ]
    leave_kernels(monkeypatch)
    logits, tokens = by_torch(lengths, shared, windows)
    torch.testing.assert_close(logits_of(step, decoded)[: len(lengths)], logits, rtol=1e-4, atol=1e-4)
    assert decoded.tokens[: len(lengths)].tolist() == tokens
    assert step.last_tokens[: len(lengths)].tolist() == tokens


@pytest.mark.usefixtures("by_kernels")
def test_a_token_that_the_host_awaits_is_taken_from_the_last_step() -> None:
    step = make_step("triton")
    with torch.inference_mode():
        step.capture([4], MAX_LEN)
        known = step.replay(decodes(step, [9, 12, 6]))
        assert known is not None
        logits = logits_of(step, known)[:3]
        step.last_tokens[:3] = torch.tensor([14, 3 + 8, 8], dtype=torch.int32)  # of rows 1, 0 and 2: their last ids
        awaited = step.replay(decodes(step, [9, 12, 6], prev_rows=[1, 0, 2]))
    assert awaited is not None
    assert awaited.inputs.input_ids[:3].tolist() == [11, 14, 8]
    torch.testing.assert_close(logits_of(step, awaited)[:3], logits)


@pytest.mark.usefixtures("by_kernels")
def test_padded_rows_store_nothing() -> None:
    step = make_step("triton")
    with torch.inference_mode():
        step.capture([8], MAX_LEN)
        keys = step._ctx.kv_pool.k_cache(0)
        before = keys.clone()
        assert step.replay(decodes(step, [9, 12])) is not None
    changed = (keys != before).any(dim=-1).any(dim=-1).nonzero()[:, 0]
    assert changed.tolist() == [(1 + 2) * PAGE_SIZE, (17 + 2) * PAGE_SIZE + 3]


@pytest.mark.usefixtures("by_kernels")
def test_what_no_graph_holds_is_not_replayed() -> None:
    step = make_step("triton")
    with torch.inference_mode():
        step.capture([2], MAX_LEN)
        assert step.replay(decodes(step, [9, 12, 6])) is None
        prompt = Req(0, 0, 0, 5, 9, 5, np.arange(5, dtype=np.int32), SamplingParams())
        assert step.replay(Batch((prompt,), NO_UPDATE, step=0)) is None
        few = decodes(step, [9, 12])
        assert step.replay(few) is not None
        cells = few.page_table_update
        many = PageTableUpdate(*(np.resize(numbers, 400) for numbers in (cells.rows, cells.cols, cells.pages)))
        assert step.replay(Batch(few.reqs, many, step=0)) is None


# Rows of many tiles and of one, cut and whole, with decodes and without; tiles of this test hold 16 queries.
MIXED = {
    "one prompt": ([21], [0], 24),
    "a prompt behind a prefix": ([60], [40], 24),
    "decodes and prompts": ([30, 7, 40, 16, 64], [29, 6, 22, 11, 56], 40),
    "as many tokens as the graph has": ([5, 44, 20], [4, 24, 17], 24),
    "more tiles than columns": ([64, 64, 64, 64], [55, 55, 55, 55], 40),
}


@pytest.mark.usefixtures("by_kernels")
@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=pytest.mark.nightly if case == "a prompt behind a prefix" else ()) for case in MIXED],
)
def test_a_replayed_batch_with_prompts_gives_the_hidden_states_of_torch(
    monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """After another batch of the same graph, nothing of which may be seen; every token's hidden state is compared."""
    (lengths, cached, size), windows = MIXED[case], (10, 0)
    step = make_step("triton", windows)
    with torch.inference_mode():
        step.capture_prompts([size], MAX_LEN)
        step.compute(mixed(step, [33, 9], [12, 8]))
        inputs, hidden = step.compute(mixed(step, lengths, cached))
    num_tokens = sum(lengths) - sum(cached)
    assert len(hidden) == size
    assert inputs.last[: len(lengths)].tolist() == (np.cumsum(np.subtract(lengths, cached)) - 1).tolist()
    assert hidden.isfinite().all()
    leave_kernels(monkeypatch)
    reference = make_step("torch", windows)
    with torch.inference_mode():
        reference.compute(mixed(reference, [33, 9], [12, 8]))
        expected = reference.compute(mixed(reference, lengths, cached)).hidden
    torch.testing.assert_close(hidden[:num_tokens], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("by_kernels")
def test_a_batch_with_prompts_runs_call_by_call_if_no_graph_holds_it_or_sharing_spares_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    share_eagerly(monkeypatch)
    step = make_step("triton")
    with torch.inference_mode():
        step.capture_prompts([24], MAX_LEN)
        fits = mixed(step, [30, 28, 40], [29, 27, 30], shared=24)
        assert step._prompts_size(fits) == 24
        assert step._prompts_size(mixed(step, [30, 28, 60], [29, 27, 30])) is None
        assert step._prompts_size(decodes(step, [30, 28])) is None
        monkeypatch.setattr(triton_backend, "EAGER_US", 0.0)
        assert make_step("triton")._ctx.attn_backend.can_replay(fits) is False

"""How many pages a pool gets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from support.dense_attention import read_json

from minisgl.distributed import TPInfo
from minisgl.engine import memory
from minisgl.engine.config import EngineConfig
from minisgl.engine.memory import make_kv_pool
from minisgl.engine.spec import resolve
from minisgl.models import ModelConfig
from minisgl.utils.hardware import find_hardware

MODEL = ModelConfig.from_hf(read_json("llama_biases", "config.json"))


class Twins:
    """A group whose other rank says what this one does."""

    def least(self, value: int) -> int:
        return value


@pytest.fixture(autouse=True)
def _one_mebibyte(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_available_bytes", lambda device: 1 << 20)


def pool_bytes(tp_size: int, **config: Any) -> int:
    """Of all ranks."""
    engine = EngineConfig(device="cpu", tensor_parallel_size=tp_size, **config)
    spec = resolve(engine, MODEL, find_hardware())
    pool = make_kv_pool(replace(spec, tp=TPInfo(0, tp_size, Twins())), MODEL)  # type: ignore[arg-type]
    return tp_size * 2 * MODEL.num_layers * pool.k_cache(0).nbytes


def test_ranks_on_a_cpu_share_what_is_free() -> None:
    one, two = pool_bytes(1, memory_ratio=0.5), pool_bytes(2, memory_ratio=0.5)
    assert one == pytest.approx(1 << 19, rel=0.01)
    assert two == pytest.approx(one, rel=0.01)


def test_ranks_that_fit_alone_only_are_refused() -> None:
    num_pages = 3000
    with pytest.raises(ValueError, match=f"num_pages={num_pages} take .* bytes, but only 524,288 are available"):
        pool_bytes(2, num_page_override=num_pages)


def test_a_gpus_memory_is_booked_by_what_was_free_before_and_after(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    free = iter([10 << 30, 7 << 30, 7 << 30, 2 << 30, 1 << 30])
    monkeypatch.setattr(memory, "_available_bytes", lambda device: next(free))
    account = memory.MemoryAccount(torch.device("cuda", 0))
    with account.book("weights"):
        pass
    with account.book("KV pool"):
        pass
    assert account.parts == {"weights": 3 << 30, "KV pool": 5 << 30}
    with caplog.at_level("INFO"):
        account.log(reserved=1 << 29)
    assert "weights 3.00, KV pool 5.00, set aside for batches 0.50, free 1.00" in caplog.text


def test_nothing_is_booked_on_a_cpu() -> None:
    account = memory.MemoryAccount(torch.device("cpu"))
    with account.book("weights"):
        pass
    assert account.parts == {}

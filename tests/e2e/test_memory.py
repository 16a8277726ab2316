"""A server's memory stays what it is once its KV pool was filled, whatever is asked of it and however long."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.live_server import live_server
from support.soak import SMOLLM2, TINY, Processes, Reading, Scale, Soak, growth, pool_bytes
from support.tiny_model import make_tiny_model

from minisgl.utils.model_store import resolve_model

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux says what is resident"),
]
NUM_PAGES = 1500
FLAGS = ("--dtype", "float32", "--num-pages", str(NUM_PAGES), "--max-running", "8")
PRIORITIES = ("--policy", "priority", "--eviction", "priority")
BOUND = 0.05
SETTLED = 1 / 6  # of the time, when the server's bounded caches are full: words of the tokenizer, records of requests


def soak(model: Path, scale: Scale, seconds: float, log: Path) -> list[Reading]:
    with live_server("--model", str(model), *FLAGS, *PRIORITIES, log=log) as server:
        load = Soak(server.url, scale)
        readings = load.run(seconds, Processes.of(server.process.pid, pool_bytes(model, NUM_PAGES)))
    assert load.errors == []
    return readings


def check_flat(readings: list[Reading]) -> None:
    seconds = readings[-1].at_s - readings[0].at_s
    assert growth(readings, "engine") < BOUND, readings
    assert growth(readings, "server", SETTLED * seconds) < BOUND, readings


@pytest.mark.slow
@pytest.mark.timeout(2 * 3600)
def test_an_hour_of_mixed_load_on_smollm2_leaves_the_memory_as_it_was(tmp_path: Path) -> None:
    check_flat(soak(resolve_model("smollm2"), SMOLLM2, 3600, tmp_path / "log"))


@pytest.mark.timeout(1800)
def test_a_hundred_thousand_requests_to_a_tiny_model_leave_the_memory_as_it_was(tmp_path: Path) -> None:
    """At 100 a second on two cores."""
    model = make_tiny_model(tmp_path / "model", max_position_embeddings=2048)
    check_flat(soak(model, TINY, 1200, tmp_path / "log"))

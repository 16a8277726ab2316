"""The GPU benchmarks run from end to end, here with a tiny model on the CPU, and count what they should."""

from __future__ import annotations

import json
from pathlib import Path

import bench_attention_layer
import bench_decode
import bench_offline
import bench_prefix
import profile_step
import pytest

from minisgl.kernel import cpu_ops

TINY = ["--model", "tiny", "--device", "cpu"]


def test_offline_counts_every_token_and_step(tmp_path: Path) -> None:
    path = tmp_path / "offline.json"
    rounds = bench_offline.main([*TINY, "--num-seqs", "4", "--max-len", "12", "--json", str(path)])
    assert [r["computed_tokens"] for r in rounds] == [r["prompt_tokens"] for r in rounds] == [48, 48]
    assert [r["decode_steps"] for r in rounds] == [11, 11]
    assert all(r["host_ms"] > 0 and r["tokens_per_s"] > 0 for r in rounds)
    written = json.loads(path.read_text())
    assert written["results"]["rounds"] == rounds
    assert "torch" in written["machine"]


def test_decode_times_every_batch_size() -> None:
    results = bench_decode.main([*TINY, "--batch", "1,3", "--context", "9", "--steps", "6"])
    assert [result["batch"] for result in results] == [1, 3]
    assert all(result["step"] > 0 and result["engine"] > 0 and result["floor"] > 0 for result in results)


def test_prefixes_are_computed_once_with_radix_and_always_with_naive() -> None:
    results = bench_prefix.main([*TINY, "system", "chats"])
    computed = {(r["line"], r["cache"]): r["computed"] for r in results}
    assert computed["system", "radix"] == 3 * (60 + 4 * 6)
    assert computed["system", "naive"] == 3 * 4 * 66
    assert computed["chats", "radix"] == 40 + 3 * 8 + 3 * (1 + 8)
    assert computed["chats", "naive"] == 3 * 48 + 3 * (48 + 4 + 8)


def test_shared_prefix_attention_is_compared_with_plain() -> None:
    results = bench_prefix.main([*TINY, "attention"])
    assert [result["shared_prefix"] for result in results] == ["off", "auto"]
    assert all(result["step ms"] > 0 for result in results)


def test_a_profile_accounts_for_the_time_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """By torch's operations: a profile knows nothing of calls of our own into C++."""
    monkeypatch.setattr(cpu_ops, "functions", dict)
    result = profile_step.main([*TINY, "--batch", "2", "--context", "5", "--shared", "8", "--steps", "3"])
    assert result["kinds"]["gemm"][0] >= 1
    assert sum(us for _, us in result["kinds"].values()) == pytest.approx(result["busy_us"])


def test_attention_of_a_layer_is_timed_with_its_prefix_read_by_all_and_once() -> None:
    results = bench_attention_layer.main([*TINY, "--backend", "torch", "--page-size", "8", "--rounds", "2"])
    assert [result["case"] for result in results] == ["decodes: 3 x (32 shared + 16)", "prompts: 2 x 16"]
    assert all(result["each"] > result["floor"] > 0 for result in results)
    assert results[0]["once"] > 0
    assert results[1]["once"] is None


def test_pages_of_a_shared_prefix_are_those_of_every_row_and_no_others_are_in_two() -> None:
    table, num_pages = bench_attention_layer.deal_pages(bench_attention_layer.Case(3, 48, shared=32), page_size=8)
    assert (table[:, :4] == table[0, :4]).all()
    assert sorted({*table.ravel().tolist()}) == list(range(num_pages)) == list(range(4 + 3 * 2))

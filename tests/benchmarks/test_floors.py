"""The floors are those that were worked out by hand for the figures of others, and workloads are what they say."""

from __future__ import annotations

import numpy as np
import pytest
import workloads
from floors import Floors, least_prefill_tokens
from models import hf_config

from minisgl.models.config import ModelConfig


def floors(name: str) -> Floors:
    return Floors(ModelConfig.from_hf(hf_config(name)))


def test_the_offline_workload_is_the_predecessors() -> None:
    workload = workloads.offline()
    assert (workload.num_prompt_tokens, workload.num_output_tokens) == (142_827, 133_966)
    assert max(workload.output_lens) == 1024


def test_rounds_have_other_ids_and_the_same_lengths() -> None:
    first, second = workloads.offline(), workloads.offline(round_=1)
    assert [len(p) for p in first.prompts] == [len(p) for p in second.prompts]
    assert first.output_lens == second.output_lens
    assert not any(a == b for a, b in zip(first.prompts, second.prompts, strict=True))


@pytest.mark.parametrize(("name", "rate"), [("qwen3-0.6b", 36_386), ("qwen3-8b", 12_902), ("qwen3-14b", 8_236)])
def test_the_floors_of_the_offline_workload_are_those_of_the_peers_table(name: str, rate: int) -> None:
    workload = workloads.offline()
    seconds = floors(name).workload_s([len(p) for p in workload.prompts], workload.output_lens)
    assert workload.num_output_tokens / seconds == pytest.approx(rate, rel=0.001)


def test_the_floor_of_one_row_is_the_time_to_read_the_weights() -> None:
    small = floors("qwen3-0.6b")
    assert small.decode_step_s(1, 0) == pytest.approx(0.277e-3, rel=0.01)
    assert small.weight_bytes == 2 * (28 * (1024 * 128 * 48 + 3 * 1024 * 3072) + 151_936 * 1024)


def test_the_floor_of_a_shared_prefix_is_that_of_the_distinct_tokens() -> None:
    """One layer of 256 requests that share 8,192 tokens: 71 us by the bytes."""
    big = floors("qwen3-8b")
    distinct = 8192 + 256 * 256
    assert big.decode_step(256, distinct).attention / 36 == pytest.approx(71e-6, rel=0.02)


def test_a_large_batch_is_bound_by_arithmetic() -> None:
    big = floors("qwen3-8b")
    assert big.decode_step(256, 0).gemm == pytest.approx(2 * 256 * (big.weight_bytes / 2) / 760e12)
    assert big.decode_step(1, 0).gemm == pytest.approx(big.weight_bytes / 4.305e12)


def test_cached_tokens_cost_no_products_of_their_own() -> None:
    big = floors("qwen3-8b")
    whole, rest = big.prefill_s([2000]), big.prefill_s([2000], [1950])
    head = 2 * big.head_params / big.gpu.flops
    assert 0.024 * (whole - head) < rest - head < 0.03 * (whole - head)


def test_the_least_prefill_counts_every_prefix_once() -> None:
    assert least_prefill_tokens([[1, 2, 3], [1, 2, 4, 5], [7], [1, 2, 3]]) == 3 + 2 + 1 + 1
    workload = workloads.shared_system(np.random.default_rng(0), 4, 8, 195, 5, 4)
    assert least_prefill_tokens(workload.prompts) == 4 * (195 + 8 * 5)


def test_a_few_shot_tree_shares_every_level() -> None:
    workload = workloads.few_shot(np.random.default_rng(0), (50, 30, 10), (3, 4), 2)
    assert [len(p) for p in workload.prompts] == [90] * 12
    assert least_prefill_tokens(workload.prompts) == 50 + 3 * 30 + 12 * 10


def test_a_chat_goes_on_from_all_that_was_said() -> None:
    chats = workloads.Chats(np.random.default_rng(0), num_chats=3, system=20, question=5, out=2)
    first = chats.next_turn()
    chats.answered([[1, 2]] * 3)
    second = chats.next_turn()
    assert [len(p) for p in second.prompts] == [20 + 5 + 2 + 5] * 3
    assert all(b[:27] == [*a, 1, 2] for a, b in zip(first.prompts, second.prompts, strict=True))

"""How rows of unlike lengths are put into rectangles."""

from __future__ import annotations

import numpy as np

from minisgl.attention.buckets import MAX_PADDING, length_buckets


def buckets_of(lengths: list[int], max_tokens: int = 10_000) -> list[list[int]]:
    return [bucket.tolist() for bucket in length_buckets(np.array(lengths, dtype=np.int64), max_tokens)]


def test_no_rows_make_no_bucket():
    assert buckets_of([]) == []


def test_rows_of_like_lengths_make_one_bucket_in_order_of_rows():
    assert buckets_of([30, 10, 20]) == [[0, 1, 2]]


def test_a_bucket_is_closed_before_it_holds_too_much_padding():
    assert buckets_of([MAX_PADDING + 2, 1, MAX_PADDING + 3]) == [[1], [0, 2]]
    assert buckets_of([MAX_PADDING + 1, 1]) == [[0, 1]]


def test_a_bucket_holds_at_most_max_tokens():
    assert buckets_of([10, 10, 10, 10, 10], max_tokens=20) == [[0, 1], [2, 3], [4]]


def test_a_row_longer_than_max_tokens_is_alone():
    assert buckets_of([50, 5, 5], max_tokens=20) == [[1, 2], [0]]


def test_random_lengths_are_all_kept_and_all_limits_hold():
    rng = np.random.default_rng(0)
    for _ in range(50):
        lengths = rng.integers(1, 1500, size=rng.integers(1, 40))
        buckets = list(length_buckets(lengths, 4096))
        assert sorted(np.concatenate(buckets)) == list(range(len(lengths)))
        for bucket in buckets:
            padded = len(bucket) * lengths[bucket].max()
            assert padded - lengths[bucket].sum() <= MAX_PADDING
            assert padded <= 4096 or len(bucket) == 1

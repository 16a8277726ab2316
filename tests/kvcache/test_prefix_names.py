from __future__ import annotations

import numpy as np
import pytest

from minisgl.kvcache.prefix_names import prefix_names
from minisgl.kvcache.types import PUBLIC, Namespace
from minisgl.utils.arrays import Int32Array


def names(ids: list[int], namespace: Namespace = PUBLIC) -> list[int]:
    return prefix_names(np.array(ids, np.int32), namespace, 1, 1).tolist()


def test_prefixes_have_the_same_names_as_far_as_they_are_the_same():
    one, other = names([1, 2, 3, 4]), names([1, 2, 5, 4])
    assert one[:2] == other[:2]
    assert set(one[2:]).isdisjoint(other[2:])


@pytest.mark.parametrize("ids", [[2, 1], [1], [1, 2, 0], [3, 0]])
def test_other_tokens_or_another_order_is_another_name(ids: list[int]):
    assert names(ids)[-1] != names([1, 2])[-1]


def test_the_same_tokens_have_another_name_in_another_namespace():
    spaces = [PUBLIC, Namespace("a"), Namespace("", "a"), Namespace("a", "b"), Namespace("ab"), Namespace("\ud800")]
    assert len({names([1, 2], space)[-1] for space in spaces}) == len(spaces)


def test_only_the_prefixes_that_are_asked_for_are_named():
    ids: Int32Array = np.arange(10, dtype=np.int32)
    every = prefix_names(ids, PUBLIC, 1, 1).tolist()
    assert prefix_names(ids, PUBLIC, 2, 3).tolist() == [every[1], every[4], every[7]]
    assert prefix_names(ids[:1], PUBLIC, 2, 3).tolist() == []


def test_names_are_spread_evenly():
    shares = [np.mean([name >> bit & 1 for name in names(list(range(4000)))]) for bit in range(64)]
    assert min(shares) > 0.45
    assert max(shares) < 0.55

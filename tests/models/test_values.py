"""Single values of a config.json: what lies outside of all that a model can have is refused by its key."""

from __future__ import annotations

import pytest

from minisgl.models.values import count, positive


@pytest.mark.parametrize("key", ["num_hidden_layers", "num_experts", "num_local_experts"])
def test_what_is_made_one_by_one_is_never_millions(key: str):
    assert count({key: 2**10}, key) == 2**10
    with pytest.raises(ValueError, match=rf"{key}=1025 .* \[1, 1024\]"):
        count({key: 2**10 + 1}, key)


@pytest.mark.parametrize("bad", [1e-300, 1e308, 10**400, float("inf"), float("nan"), True])
def test_a_number_that_float32_does_not_have_is_refused(bad: float):
    with pytest.raises(ValueError, match="rms_norm_eps="):
        positive({"rms_norm_eps": bad}, "rms_norm_eps")

import pytest

from minisgl.kvcache import PREFIX_CACHES
from minisgl.utils.registry import Registry


def test_a_name_gives_what_was_registered_under_it():
    shapes: Registry[type] = Registry("shape")

    @shapes.register("round")
    class Round: ...

    assert shapes["round"] is Round
    assert shapes.names == ("round",)
    assert "round" in shapes
    assert "square" not in shapes


def test_an_unknown_name_is_an_error_that_lists_the_known_ones():
    with pytest.raises(ValueError, match="unknown prefix cache 'lru'; known: naive, radix"):
        PREFIX_CACHES["lru"]


def test_a_name_cannot_be_taken_twice():
    shapes: Registry[str] = Registry("shape")
    shapes.register("round")("circle")
    with pytest.raises(ValueError, match="shape 'round' is registered already"):
        shapes.register("round")
    assert shapes["round"] == "circle"

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from minisgl.env import Env
from minisgl.server.config import ServerConfig


def test_nobody_outside_this_machine_is_served_by_default() -> None:
    config = ServerConfig()
    assert config.host == "127.0.0.1"
    assert config.cors_origins == ()


def test_every_field_says_what_it_is_for() -> None:
    assert all(field.metadata["help"] for field in dataclasses.fields(ServerConfig))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"port": 70000}, "port=70000"),
        ({"port": -1}, "port=-1"),
        ({"port": True}, "port=True"),
        ({"max_queued": -1}, "max_queued=-1"),
        ({"max_body_bytes": 0}, "max_body_bytes=0"),
        ({"request_timeout": 0.0}, "request_timeout=0.0"),
        ({"request_timeout": float("nan")}, "request_timeout=nan"),
        ({"drain_timeout": -1.0}, "drain_timeout=-1.0"),
        ({"drain_timeout": float("inf")}, "drain_timeout=inf"),
        ({"api_key": ""}, "api_key='' is empty"),
        ({"served_model_name": ""}, "served_model_name='' is empty"),
        ({"cors_origins": "https://a.example"}, "not a list of origins"),
        ({"otlp_endpoint": "localhost:4318"}, "otlp_endpoint='localhost:4318'"),
    ],
)
def test_a_wrong_value_is_named(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ServerConfig(**fields)


def test_the_environment_may_hold_the_key_but_not_an_empty_one() -> None:
    assert Env({}).API_KEY.value is None
    assert Env({"MINISGL_API_KEY": "s3cret"}).API_KEY.value == "s3cret"
    with pytest.raises(ValueError, match="MINISGL_API_KEY"):
        Env({"MINISGL_API_KEY": ""})

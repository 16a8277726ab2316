"""By which names a server without a key answers, and to whom it shows its engine at work."""

from __future__ import annotations

import pytest
from support.asgi import Api
from support.server_app import ask

from minisgl.server.config import ServerConfig
from minisgl.server.endpoints import ROUTES
from minisgl.server.middleware import OPEN_PATHS

PATHS = ["/inspect/activity", "/inspect/requests", "/inspect/tree", "/inspect/tree/1"]
REBOUND = "evil.example:8000"


def status(path: str, host: str, config: ServerConfig | None = None) -> int:
    return ask(Api(config=config).app, "GET", path, headers={"Host": host}).status_code


@pytest.mark.parametrize("path", PATHS)
def test_a_page_whose_name_was_pointed_at_this_machine_sees_nothing(path: str) -> None:
    api = Api()
    response = ask(api.app, "GET", path, headers={"Host": REBOUND})
    assert api.check_error(403, response)["code"] == "foreign_host"
    assert not api.link.asked
    assert not api.link.asked_since


def test_nor_does_it_find_a_prompt() -> None:
    response = ask(Api().app, "POST", "/inspect/path", json={"prompt": "abc"}, headers={"Host": REBOUND})
    assert response.status_code == 403


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "localhost:8000", "LOCALHOST.:8000", "minisgl.localhost", "127.0.0.1:8000", "[::1]:8000"),
        *("10.0.0.7:8000", ""),
    ],
)
def test_this_machines_names_and_numbers_are_let_in(host: str) -> None:
    assert status("/inspect/activity", host) == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "notlocalhost", "127.0.0.1.evil.example", "[::1", "a b", "@", "x@y"],
)
def test_other_names_are_not(host: str) -> None:
    assert status("/inspect/activity", host) == 403


EVERYWHERE = [
    ("GET", "/metrics"),
    ("GET", "/get_server_info"),
    ("GET", "/v1/models"),
    ("GET", "/"),
    ("GET", "/docs"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("POST", "/generate"),
    ("POST", "/cache/explain"),
    ("POST", "/flush_cache"),
]


@pytest.mark.parametrize(("method", "path"), EVERYWHERE)
def test_no_path_answers_to_such_a_page_and_the_refusal_names_the_flag(method: str, path: str) -> None:
    api = Api()
    error = api.check_error(403, ask(api.app, method, path, headers={"Host": REBOUND}))
    assert error["code"] == "foreign_host"
    assert "--allowed-hosts evil.example" in error["message"]
    assert not api.link.asked


def test_a_probe_may_use_any_name() -> None:
    assert status("/health", REBOUND) == 200


def test_a_name_without_a_dot_is_nobody_s_in_the_public_dns() -> None:
    assert status("/v1/models", "minisgl:8000") == 200
    assert status("/inspect/activity", "minisgl:8000") == 403


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_names_that_are_allowed_are_the_only_ones_wherever_the_server_listens(host: str) -> None:
    config = ServerConfig(host=host, allowed_hosts=("LLM.example.org", "other.example"))
    assert status("/inspect/activity", "llm.example.org:8000", config) == 200
    assert status("/v1/models", "other.example", config) == 200
    assert status("/v1/models", REBOUND, config) == 403


@pytest.mark.parametrize(
    "config",
    [
        ServerConfig(allowed_hosts=("*",)),
        ServerConfig(host="0.0.0.0"),
        ServerConfig(host="gpu-box"),
        ServerConfig(cors_origins=("https://EVIL.example",)),
        ServerConfig(cors_origins=("*",)),
    ],
)
def test_a_server_that_others_reach_or_whose_pages_are_named_has_any_name(config: ServerConfig) -> None:
    assert status("/inspect/activity", REBOUND, config) == 200


def test_with_a_key_the_key_is_enough_and_wanted_everywhere() -> None:
    app = Api(config=ServerConfig(api_key="k")).app
    headers = {"Host": REBOUND, "Authorization": "Bearer k"}
    assert ask(app, "GET", "/inspect/activity", headers=headers).status_code == 200
    for route in ROUTES:
        for method in ("GET", "HEAD", "POST", "OPTIONS"):
            for path in (route.path, f"{route.path}/", f"/{route.path}", f"{route.path}%2f"):
                if path not in OPEN_PATHS:
                    assert ask(app, method, f"http://localhost{path}").status_code == 401, (method, path)

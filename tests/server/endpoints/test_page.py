"""The page and its files are served to everybody, whole and unchanged, and nothing else is."""

from __future__ import annotations

import gzip
import re

import httpx
import pytest
from support.asgi import Api
from support.server_app import ask

from minisgl.server.config import ServerConfig
from minisgl.server.page_files import FOLDER, MEDIA_TYPES, PATHS

LOCKED = ServerConfig(api_key="secret")
NAMES = sorted(set(MEDIA_TYPES) - {"index.html"})


def get(api: Api, path: str, **headers: str) -> httpx.Response:
    return ask(api.app, "GET", path, headers=headers)


def test_the_files_are_those_that_were_built() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(MEDIA_TYPES)
    api = Api()
    for name, media_type in MEDIA_TYPES.items():
        response = api.get("/" if name == "index.html" else f"/ui/{name}")
        assert (response.status_code, response.headers["content-type"]) == (200, media_type)
        assert response.content == (FOLDER / name).read_bytes()


def test_what_the_page_asks_for_is_there() -> None:
    page = (FOLDER / "index.html").read_text()
    named = re.findall(r'(?:href|src)="([^"]+)"', page)
    assert len(named) == 3
    assert {f"/{path}" for path in named} < PATHS


def test_nothing_is_loaded_from_elsewhere_and_nothing_guessed() -> None:
    headers = Api().get("/").headers
    assert headers["content-security-policy"].startswith("default-src 'self'; ")
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("tag", ["{}", "W/{}", '"other", {}'])
def test_a_browser_that_has_a_file_is_not_sent_it_again(tag: str) -> None:
    api = Api()
    first = api.get("/ui/app.js")
    again = get(api, "/ui/app.js", **{"if-none-match": tag.format(first.headers["etag"])})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
    assert get(api, "/ui/app.css", **{"if-none-match": first.headers["etag"]}).status_code == 200


def test_a_file_is_packed_for_whoever_takes_that() -> None:
    api = Api()
    plain, packed = get(api, "/ui/app.js", **{"accept-encoding": ""}), get(api, "/ui/app.js")
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.content == plain.content  # httpx unpacks it
    assert int(packed.headers["content-length"]) == len(gzip.compress(plain.content, mtime=0)) < len(plain.content)


@pytest.mark.parametrize(
    ("sent", "is_packed"),
    [
        ("br, GZIP;q=0.5", True),
        ("gzip; q=1", True),
        ("gzip;q=0", False),
        ("gzip ; q=0.000, br", False),
        ("xgzip", False),
    ],
)
def test_who_does_not_want_a_file_packed_gets_it_plain(sent: str, is_packed: bool) -> None:
    assert ("content-encoding" in get(Api(), "/ui/app.css", **{"accept-encoding": sent}).headers) == is_packed


def test_a_head_is_told_the_length_alone() -> None:
    response = ask(Api().app, "HEAD", "/ui/app.js", headers={"accept-encoding": ""})
    assert response.status_code == 200
    assert int(response.headers["content-length"]) == (FOLDER / "app.js").stat().st_size


@pytest.mark.parametrize(
    "path",
    [
        "/ui/", "/ui/index.html", "/ui/nothing.js", "/ui/%2e%2e", "/ui/..%2fpage_files.py",
        "/ui/%2e%2e/page_files.py", "/ui//etc/passwd", "/ui/app.js/", "/ui/app.js%00",
    ],
)  # fmt: skip
def test_no_other_file_is_reached(path: str) -> None:
    api = Api()
    assert api.get(path).status_code == 404


def test_the_page_is_there_while_the_model_loads() -> None:
    assert Api(engine=None).get("/").status_code == 200


def test_the_page_needs_no_key_and_what_it_shows_does() -> None:
    api = Api(config=LOCKED)
    assert {api.get(path).status_code for path in PATHS} == {200}
    for path in ("/v1/models", "/get_server_info", "/ui/nothing.js", "/ui/%2e%2e/get_server_info"):
        assert api.get(path).status_code == 401


def test_a_server_without_a_page_has_none() -> None:
    api = Api(config=ServerConfig(ui=False))
    for path in sorted(PATHS):
        error = api.get(path)
        assert (error.status_code, error.json()["error"]["code"]) == (404, "not_found")

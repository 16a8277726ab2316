"""What is shown of requests that are over."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.asgi import CHAT, COMPLETIONS, GENERATE, HI, Api, ids_of
from support.scripted_link import Item
from support.server_app import ask, make_app
from support.tiny_model import EOS

from minisgl.core import Explanation
from minisgl.message import UserMsg
from minisgl.server.config import ServerConfig
from minisgl.server.records import MAX_OVER, RequestRecord

REQUESTS = "/inspect/requests"


def script(request: UserMsg) -> Iterable[Item]:
    yield Explanation(hit=3, evicted=2, other_namespace=1, left_at=3, branch=tuple(ids_of("xyz")), evicted_s=1.5)
    yield from [*ids_of("Hello"), EOS]


def shown(api: Api, query: str = "") -> list[dict[str, Any]]:
    response = api.get(REQUESTS + query)
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["requests"]
    return found


def test_a_request_that_is_over_is_shown_with_its_numbers_and_why_its_prompt_was_computed() -> None:
    api = Api(script, cached_len=3)
    request_id = api.post(COMPLETIONS, prompt="Hi you", n=2).headers["x-request-id"]
    (found,) = shown(api)
    assert found["request_id"] == request_id
    assert found["uids"] == [request.uid for request in api.link.requests]
    assert (found["endpoint"], found["status"], found["finish_reason"]) == (COMPLETIONS, 200, "stop")
    assert (found["prompt_tokens"], found["cached_tokens"], found["generated_tokens"]) == (6, 3, 12)
    assert 0 <= found["first_token_s"] <= found["total_s"]
    explanation = found["explanation"]
    assert {cause: tokens for cause, tokens in explanation.pop("causes").items() if tokens} == {
        "hit": 3,
        "evicted": 2,
        "other_namespace": 1,
    }
    assert explanation == {"left_at": 3, "evicted_s": 1.5, "evicted_tokens": None}


def test_texts_are_shown_only_if_the_server_was_started_so() -> None:
    api = Api(script, config=ServerConfig(ui_show_text=True))
    api.whole(COMPLETIONS, prompt="Hi you")
    parts = {"before": "Hi ", "after": "you", "branch": "xyz", "same_text": False}
    assert shown(api)[0]["explanation"]["around"] == parts


@pytest.mark.parametrize(("path", "body"), [("/cache/purge", {"cache_salt": "ada"}), ("/flush_cache", {})])
def test_a_purge_forgets_the_texts_of_all_that_came_before_it(path: str, body: dict[str, Any]) -> None:
    """Also of one that still runs, though its explanation comes later."""
    may_go_on = threading.Event()

    def scripted(request: UserMsg) -> Iterable[Item]:
        while request.input_ids.tolist() == ids_of("slow") and not may_go_on.is_set():
            yield 0.001
        yield from script(request)

    api = Api(scripted, config=ServerConfig(ui_show_text=True))
    api.whole(COMPLETIONS, prompt="Hi you")
    with ThreadPoolExecutor() as pool:
        slow = pool.submit(api.whole, COMPLETIONS, prompt="slow")
        while not api.state.book:
            time.sleep(0.001)
        assert api.post(path, **body).status_code == 200
        may_go_on.set()
        slow.result()
    assert ["around" in each["explanation"] for each in shown(api)] == [False, False]
    api.whole(COMPLETIONS, prompt="Hi you")
    assert "around" in shown(api)[0]["explanation"]


def test_the_newest_come_first_and_no_more_than_are_asked_for() -> None:
    api = Api(script)
    for path, body in ((CHAT, {"messages": HI}), (COMPLETIONS, {"prompt": "Hi"}), (GENERATE, {"text": "Hi"})):
        api.whole(path, **body)
    assert [each["endpoint"] for each in shown(api)] == [GENERATE, COMPLETIONS, CHAT]
    assert [each["endpoint"] for each in shown(api, "?limit=2")] == [GENERATE, COMPLETIONS]


def test_others_are_not_shown_nor_those_that_were_refused() -> None:
    api = Api(script)
    api.get("/version")
    api.post(CHAT, messages=[])
    assert shown(api) == []


def test_the_book_keeps_a_bounded_number() -> None:
    book = Api().state.book
    for number in range(MAX_OVER + 5):
        book.open(record := RequestRecord(f"req-{number}", endpoint=CHAT))
        book.close(record)
    assert (len(book.over), book.over[0].request_id) == (MAX_OVER, "req-5")


@pytest.mark.parametrize("query", ["limit=0", "limit=513", "limit=x", "limit=-1", "limit=1&limit=2", "limit="])
def test_a_wrong_limit_is_named(query: str) -> None:
    assert Api().check_error(400, Api().get(f"{REQUESTS}?{query}"))["param"] == "limit"


def test_it_wants_the_key_and_an_engine() -> None:
    assert Api(config=ServerConfig(api_key="k")).get(REQUESTS).status_code == 401
    assert ask(make_app(), "GET", REQUESTS).status_code == 503

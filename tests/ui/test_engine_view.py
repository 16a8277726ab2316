"""The engine's view on the page: lanes, charts, past requests, pausing, and what it says while something is missing."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect
from support.engine_page import painted, show_engine
from support.mock_activity import MockActivity
from support.mock_engine import MockEngine, past_request
from support.page import PHONE, OpenPage

from minisgl.server.config import ServerConfig


def open_engine(open_page: OpenPage, engine: MockEngine, **context: object) -> Page:
    """Its clock goes on by itself, and faster in `settle`."""
    page = open_page(engine, **context)
    page.clock.install()
    return show_engine(page)


def settle(page: Page, seconds: int = 5) -> None:
    """So many seconds go by for the page, by default more than it waits between two questions, and answers come."""
    for _ in range(seconds):
        page.clock.run_for(1000)
        page.wait_for_timeout(200)


def settle_until(page: Page, is_so: Callable[[], bool]) -> None:
    """As many seconds as it takes: an answer that took long on a busy machine is followed by a long pause."""
    for _ in range(60):
        if is_so():
            return
        settle(page, 1)
    raise AssertionError("it never was")


def test_each_request_has_a_lane(open_page: OpenPage) -> None:
    engine = MockEngine(activity=MockActivity(num_clients=6, max_running=4))
    engine.activity.run(8)
    page = open_engine(open_page, engine)
    lanes = page.get_by_role("img", name=re.compile(r"^Lanes of \d+ requests"))
    lanes.wait_for()
    assert painted(lanes) > 1000
    expect(page.locator(".lanes header")).to_contain_text("running")


def test_pointing_at_a_lane_tells_what_the_request_did(open_page: OpenPage) -> None:
    engine = MockEngine(activity=MockActivity(num_clients=1), speed=0)
    engine.activity.requests[0].prompt, engine.activity.requests[0].cached = 90_000, 0
    engine.activity.run(6)
    page = open_engine(open_page, engine)
    lanes = page.get_by_role("img", name=re.compile("^Lanes"))
    width = lanes.bounding_box()["width"]  # type: ignore[index]
    lanes.hover(position={"x": width * (1 - 2 / 30), "y": 8})
    said = page.locator(".lanes .tooltip")
    expect(said).to_contain_text("chat-00001")
    expect(said).to_contain_text(re.compile(r"tokens [\d.,k]+ to [\d.,k]+ \(512\) in"))


def test_hundreds_of_requests_are_folded(open_page: OpenPage) -> None:
    engine = MockEngine(activity=MockActivity(num_clients=400, max_running=300))
    engine.activity.run(4)
    page = open_engine(open_page, engine)
    lanes = page.get_by_role("img", name=re.compile(r"^Lanes of \d{3,} requests"))
    lanes.wait_for()
    assert lanes.bounding_box()["height"] < 400  # type: ignore[index]


def test_open_requests_are_a_table_too(open_page: OpenPage) -> None:
    page = open_engine(open_page, MockEngine(activity=MockActivity(num_clients=5)))
    page.get_by_text("Open requests as a table").click()
    expect(page.locator(".open-requests tbody tr")).to_have_count(5)


def test_what_more_memory_would_buy_is_said_in_words(open_page: OpenPage) -> None:
    page = open_engine(open_page, MockEngine())
    expect(page.locator(".charts")).to_contain_text(
        "With twice the memory 71 % of prompt tokens would be hits instead of 62 %."
    )


def test_charts_grow_from_answer_to_answer(open_page: OpenPage) -> None:
    page = open_engine(open_page, MockEngine())
    expect(page.locator(".chart .uplot")).to_have_count(8)
    for title in ("Pool, tokens", "Tokens a second", "Time to the first token", "Evicted tokens a second"):
        expect(page.get_by_role("region", name=title, exact=True)).to_be_visible()


def test_a_paused_page_asks_nothing(open_page: OpenPage) -> None:
    engine = MockEngine()
    page = open_engine(open_page, engine)
    page.locator(".headline").wait_for()
    page.get_by_role("button", name="Pause").click()
    settle(page, 1)
    asked = sum(engine.asked.values())
    settle(page)
    assert sum(engine.asked.values()) == asked
    page.keyboard.press("p")
    settle(page, 1)
    assert sum(engine.asked.values()) > asked


def test_it_asks_one_question_at_a_time_however_slow_the_answers_are(open_page: OpenPage) -> None:
    engine = MockEngine()
    engine.slow_s = 0.3
    page = open_engine(open_page, engine)
    page.locator(".headline").wait_for()
    settle(page, 20)
    assert engine.asked["/inspect/activity"] >= 2
    assert engine.most_open == 1


def test_nothing_is_asked_for_what_is_scrolled_away(open_page: OpenPage) -> None:
    engine = MockEngine()
    page = open_engine(open_page, engine)
    page.locator(".requests .row-button").last.scroll_into_view_if_needed()
    settle(page, 1)
    asked = engine.asked.copy()
    settle_until(page, lambda: engine.asked["/inspect/requests"] > asked["/inspect/requests"])
    assert engine.asked["/inspect/tree"] == asked["/inspect/tree"]


def test_the_tree_is_not_asked_for_while_the_engine_rests(open_page: OpenPage) -> None:
    engine = MockEngine(speed=0)
    page = open_engine(open_page, engine)
    page.locator(".tree-drawing").wait_for()
    settle_until(page, lambda: engine.asked["/inspect/activity"] > 2)
    settle(page)
    asked = engine.asked.copy()
    settle_until(page, lambda: engine.asked["/inspect/activity"] > asked["/inspect/activity"] + 1)
    assert engine.asked["/inspect/tree"] == asked["/inspect/tree"]
    engine.speed = 1
    settle_until(page, lambda: engine.asked["/inspect/tree"] > asked["/inspect/tree"])


def test_with_a_key_it_starts_when_the_key_is_given(open_page: OpenPage) -> None:
    page = open_page(MockEngine(config=ServerConfig(api_key="secret")), ready=False)
    field = page.get_by_role("dialog").locator("input")
    field.fill("secret")
    field.press("Enter")
    expect(page.locator(".headline")).to_be_visible()
    expect(page.locator(".tree-drawing")).to_be_visible()


def test_a_hidden_tab_asks_nothing(open_page: OpenPage) -> None:
    engine = MockEngine()
    page = open_engine(open_page, engine)
    page.locator(".headline").wait_for()
    page.evaluate(
        """Object.defineProperty(document, "hidden", { get: () => true });
        document.dispatchEvent(new Event("visibilitychange"))"""
    )
    settle(page, 1)
    asked = sum(engine.asked.values())
    settle(page)
    assert sum(engine.asked.values()) == asked


def test_a_view_that_is_not_shown_asks_nothing(open_page: OpenPage) -> None:
    engine = MockEngine()
    page = open_engine(open_page, engine)
    page.locator(".headline").wait_for()
    page.get_by_role("button", name="Chat", exact=True).click()
    settle(page, 1)
    asked = sum(engine.asked.values())
    settle(page)
    assert sum(engine.asked.values()) == asked


def test_an_older_server_is_said_to_be_older(open_page: OpenPage) -> None:
    engine = MockEngine()
    engine.trouble = 404
    page = open_engine(open_page, engine)
    expect(page.get_by_text("it is older than this page")).to_have_count(3)


def test_an_engine_that_does_not_answer_keeps_its_last_picture(open_page: OpenPage) -> None:
    engine = MockEngine()
    page = open_engine(open_page, engine)
    page.locator(".headline").wait_for()
    engine.trouble = 500
    settle(page)
    expect(page.get_by_text("This is what it said last.").first).to_be_visible()
    expect(page.locator(".headline")).to_be_visible()
    engine.trouble = None
    settle(page)
    expect(page.get_by_text("This is what it said last.")).to_have_count(0)


def test_a_miss_is_explained(open_page: OpenPage) -> None:
    missed = past_request("mine", {"never_seen": 21, "evicted": 64}, hit=36)
    missed["explanation"] |= {
        "left_at": 36,
        "around": {"before": "Today is ", "after": "<b>Tuesday</b>", "branch": "Monday"},
    }
    page = open_engine(open_page, MockEngine(requests=[missed]))
    row = page.locator(".requests tbody tr").first
    expect(row).to_contain_text("30 %")
    page.get_by_role("button", name="mine").click()
    about = page.locator(".request-about")
    expect(about).to_contain_text(
        "64 tokens had been cached, and were evicted for want of memory, 12.5 s and 4,096 evicted tokens earlier"
    )
    expect(about).to_contain_text("21 tokens were new")
    expect(about).to_contain_text("It left the closest prompt at token 36 of 122.")
    expect(about).to_contain_text("<b>Tuesday</b>")
    expect(about).to_contain_text("Monday")


def test_past_requests_can_be_filtered_and_sorted(open_page: OpenPage) -> None:
    requests = [
        past_request("small-new", {"never_seen": 10}),
        past_request("large-new", {"never_seen": 900}),
        past_request("gone", {"evicted": 100}),
        past_request("found", {}),
    ]
    page = open_engine(open_page, MockEngine(requests=requests))
    names = page.locator(".requests tbody .row-button")
    expect(names).to_have_count(4)
    page.get_by_label("Only those that missed because of").select_option("never_seen")
    expect(names).to_have_text(["small-new", "large-new"])
    page.get_by_role("button", name="Prompt", exact=True).click()
    expect(names).to_have_text(["large-new", "small-new"])
    page.get_by_role("button", name="Prompt").click()
    expect(names).to_have_text(["small-new", "large-new"])
    page.get_by_label("Only requests with this").fill("SMALL")
    expect(names).to_have_text(["small-new"])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_on_a_phone(open_page: OpenPage, scheme: str) -> None:
    page = open_engine(open_page, MockEngine(), viewport=PHONE, color_scheme=scheme)
    page.locator(".headline").wait_for()
    wide = page.evaluate(
        "document.querySelector('.engine').scrollWidth - document.querySelector('.engine').clientWidth"
    )
    assert wide == 0

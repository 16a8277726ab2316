"""The engine's view before a whole server with a tiny model, while eight clients chat."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Page, expect
from support.engine_page import box_of, drawing, painted, show_engine
from support.live_server import LiveServer, live_server
from support.page import OpenPage
from support.tiny_model import make_tiny_model

FLAGS = ("--num-pages", "2048", "--max-running", "4", "--max-extend-tokens", "64", "--dtype", "float32")
SYSTEM = "You are a helpful assistant. Answer shortly. "
NUM_CLIENTS = 8


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    folder = make_tiny_model(tmp_path_factory.mktemp("tiny"))
    with live_server("--model", str(folder), *FLAGS, "--ui-show-text", log=folder / "log") as server:
        yield server


@contextmanager
def eight_clients(server: LiveServer) -> Iterator[None]:
    """Each asks again as soon as it is answered; what it says begins as what the others say."""
    ended = threading.Event()

    def chat(number: int) -> None:
        chance = random.Random(number)
        while not ended.is_set():
            prompt = SYSTEM + f"Client {number} asks for {chance.randrange(40)} things. " * 3
            status, answer = server.post("/v1/completions", {"prompt": prompt, "max_tokens": chance.randint(4, 24)})
            assert status == 200, answer

    threads = [threading.Thread(target=chat, args=(number,)) for number in range(NUM_CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def size_of_tree(page: Page) -> str:
    return page.locator(".tree header .number").inner_text()


def test_the_tree_changes_and_lanes_appear_while_eight_clients_chat(open_page: OpenPage, server: LiveServer) -> None:
    page = show_engine(open_page(server=server.url))
    with eight_clients(server):
        drawing(page).wait_for()
        before = size_of_tree(page)
        expect(page.locator(".tree header .number")).not_to_have_text(before)
        lanes = page.get_by_role("img", name=re.compile(r"^Lanes of ([4-9]|\d\d+) requests"))
        lanes.wait_for()
        assert painted(lanes) > 500
        expect(page.locator(".lanes header")).to_contain_text(re.compile("[1-9] running"))
        page.locator(".requests").scroll_into_view_if_needed()
        expect(page.locator(".requests tbody .row-button").nth(4)).to_be_visible()
    expect(page.locator(".headline-causes")).to_contain_text("cached")


def test_a_prefix_is_found_pointed_at_and_zoomed(open_page: OpenPage, server: LiveServer) -> None:
    for end in ("one", "another"):
        server.post("/v1/completions", {"prompt": SYSTEM + end, "max_tokens": 4})
    page = show_engine(open_page(server=server.url))
    drawing(page).wait_for()
    search = page.get_by_role("search")
    search.get_by_label("What the text is").select_option("prompt")
    search.get_by_role("searchbox").fill(SYSTEM + "never asked")
    search.get_by_role("button", name="Find").click()
    expect(search.get_by_role("status")).to_have_text(re.compile(r"[1-9]\d* of \d+ tokens cached\."))
    drawing(page).hover(position={"x": 60, "y": int(box_of(drawing(page))["height"] / 3)})
    expect(page.locator(".tooltip")).to_contain_text("You are a help")
    drawing(page).dblclick(position={"x": 60, "y": int(box_of(drawing(page))["height"] / 3)})
    expect(page.get_by_role("navigation", name="Where in the tree").get_by_role("button")).to_have_count(2)
    expect(drawing(page)).to_have_attribute("aria-label", re.compile(r"([2-9]|\d\d+) of them drawn"))


def test_who_uses_a_prefix_is_shown_while_it_is_used(open_page: OpenPage, server: LiveServer) -> None:
    server.post("/flush_cache", {})  # what others left would be evicted, and its nodes joined with those that stay
    page = show_engine(open_page(server=server.url))
    with eight_clients(server):
        expect(page.locator(".lanes header")).to_contain_text("4 running")
        page.wait_for_timeout(3000)  # until what all begin with is a node
        drawing(page).click(position={"x": 60, "y": 60})
        details = page.get_by_role("complementary", name="Node")
        expect(details).to_contain_text(re.compile(r"req-\w+ (prefill|decode)"))

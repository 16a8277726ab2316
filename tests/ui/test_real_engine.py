"""The page over the real engine, with a tiny model: what is cached, evicted and new is lit up as it is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect
from support.chat_page import NARROW, ChatPage
from support.live_server import LiveServer, live_server
from support.page import OpenPage
from support.tiny_model import make_tiny_model


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """Its pool holds 400 tokens, so that what was said before is soon evicted."""
    model = make_tiny_model(tmp_path_factory.mktemp("model"))
    with live_server("--model", str(model), "--dtype", "float32", "--num-pages", "400") as server:
        yield server


@pytest.fixture
def chat(open_page: OpenPage, server: LiveServer) -> ChatPage:
    """With an empty cache, and answers of some tokens."""
    assert server.post("/flush_cache", {})[0] == 200
    chat = ChatPage(open_page(server=server.url, viewport=NARROW))
    chat.page.get_by_role("button", name="Settings").click()
    chat.page.get_by_label("max_tokens").fill("8")
    return chat


def change(chat: ChatPage, text: str) -> None:
    chat.press(0, "Edit")
    chat.page.get_by_label("Your message").fill(text)


def test_what_a_changed_question_shares_with_the_one_before_is_lit_up(chat: ChatPage) -> None:
    chat.say("Tell me of trees")
    change(chat, "Tell me of the birds")
    expect(chat.turn(0).locator("mark")).to_have_count(2)
    assert chat.marks(0) == [("hit", "Tell me of t"), ("never_seen", "he birds")]
    assert {cause for cause, _ in chat.marks(1)} <= {"never_seen"}


def test_a_question_that_was_asked_before_comes_from_the_cache(chat: ChatPage) -> None:
    chat.say("Tell me of trees")
    expect(chat.turn(1).locator(".figures")).to_contain_text("queue")
    assert "0 cached" in chat.figures(1)
    chat.press(1, "Regenerate")
    expect(chat.turn(1).locator(".figures")).to_contain_text("1 computed")


def test_what_had_to_go_for_others_is_shown_as_evicted(chat: ChatPage, server: LiveServer) -> None:
    chat.say("Tell me of trees")
    for letter in "abcdef":
        assert server.post("/v1/completions", {"prompt": letter * 100, "max_tokens": 1})[0] == 200
    chat.press(0, "Edit")
    expect(chat.turn(0).locator("mark[data-cause=evicted]")).to_have_text("Tell me of trees")
    expect(chat.page.locator(".legend")).to_contain_text("evicted")
    chat.page.keyboard.press("Enter")
    chat.page.get_by_role("button", name="Why not cached?").click()
    expect(chat.turn(1).locator(".explained")).to_contain_text("evicted for want of memory")

"""The page around chat and engine: it comes up, says how the server is, and can be used by anybody."""

from __future__ import annotations

from dataclasses import replace

import pytest
from playwright.sync_api import Page, expect
from support.asgi import Api, says
from support.chat_page import NARROW, ChatPage
from support.live_server import free_port
from support.page import PHONE, WIDE, OpenPage
from support.page_server import page_server

from minisgl.core import Explanation
from minisgl.server.config import ServerConfig

LOCKED = ServerConfig(api_key="secret")


def state_of(page: Page, state: str) -> None:
    """It is this before long."""
    page.locator(f'.connection[data-state="{state}"]').wait_for()


def test_it_names_the_model_when_the_server_is_ready(open_page: OpenPage) -> None:
    page = open_page(Api())
    assert page.locator(".connection .model").inner_text() == "a-model"
    assert page.title() == "a-model · minisgl"


def test_it_says_that_the_model_is_being_loaded_and_goes_on_when_it_is(open_page: OpenPage) -> None:
    api = Api(says("Hello."), engine=None)
    page = open_page(api, ready=False, viewport=NARROW)
    state_of(page, "loading")
    assert page.locator(".connection").inner_text() == "loading the model"
    chat = ChatPage(page)
    chat.field.fill("Hi")
    expect(page.get_by_role("button", name="Send")).to_be_disabled()
    api.app.state.server = replace(api.state, engine=api.engine)
    state_of(page, "ready")
    chat.say("Hi")
    assert chat.bubble(1) == "Hello."


def test_it_says_that_the_server_is_gone_and_finds_it_again(open_page: OpenPage) -> None:
    port, api = free_port(), Api(says("Hello."))
    with page_server(api.app, port) as address:
        page = open_page(server=address, viewport=NARROW)
        chat = ChatPage(page)
        chat.say("Hi")
    chat.field.fill("More")
    state_of(page, "gone")
    assert "trying again" in page.locator(".connection").inner_text()
    assert (chat.bubble(1), chat.field.input_value()) == ("Hello.", "More")
    with page_server(Api(says("Back.")).app, port):
        state_of(page, "ready")
        chat.say("More")
        assert chat.bubble(3) == "Back."


def test_it_asks_for_the_key_until_it_is_right_and_keeps_it_in_this_tab_alone(open_page: OpenPage) -> None:
    page = open_page(Api(says("Hello."), config=LOCKED), ready=False, viewport=NARROW)
    state_of(page, "locked")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("API key").fill("wrong")
    page.keyboard.press("Enter")
    expect(dialog.get_by_role("alert")).to_have_text("The server refused that key.")
    dialog.get_by_label("API key").fill("secret")
    page.keyboard.press("Enter")
    state_of(page, "ready")
    assert dialog.count() == 0
    page.reload()
    state_of(page, "ready")
    chat = ChatPage(page)
    chat.say("Hi")
    assert chat.bubble(1) == "Hello."
    assert "secret" not in page.evaluate("JSON.stringify(localStorage) + location.href + document.cookie")


def test_a_server_without_a_page_shows_none(open_page: OpenPage) -> None:
    page = open_page(Api(config=ServerConfig(ui=False)), ready=False)
    assert "--no-ui" in page.locator("body").inner_text()


def background(page: Page) -> str:
    color: str = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    return color


LIGHT, DARK = "rgb(246, 246, 244)", "rgb(19, 21, 23)"


@pytest.mark.parametrize(("system", "color"), [("light", LIGHT), ("dark", DARK)])
def test_it_is_light_or_dark_as_the_system_is_unless_it_is_told(open_page: OpenPage, system: str, color: str) -> None:
    page = open_page(Api(), color_scheme=system)
    seen = [background(page)]
    for _ in range(3):
        page.get_by_role("button", name="Theme").click()
        seen.append(background(page))
    assert seen == [color, LIGHT, DARK, color]
    page.keyboard.press("t")
    page.keyboard.press("t")
    page.reload()
    assert background(page) == DARK


CONTRAST = """variables => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
  const luminance = variable => {
    const probe = document.body.appendChild(document.createElement("span"));
    probe.style.color = `var(${variable})`;
    canvas.fillStyle = getComputedStyle(probe).color;
    probe.remove();
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map(value => {
      const part = value / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const [light, dark] = variables.map(luminance).sort((a, b) => b - a);
  return (light + 0.05) / (dark + 0.05);
}"""


@pytest.mark.parametrize("system", ["light", "dark"])
def test_text_can_be_read_on_every_ground(open_page: OpenPage, system: str) -> None:
    """4.5 to 1, as WCAG's level AA has it; 3 to 1 for what is no text."""
    page = open_page(Api(), color_scheme=system)
    for ground in ("--bg", "--surface", "--sunken"):
        for text in ("--text", "--muted", "--accent", "--danger"):
            assert page.evaluate(CONTRAST, [text, ground]) >= 4.5, (text, ground)
        assert page.evaluate(CONTRAST, ["--focus", ground]) >= 3
    assert page.evaluate(CONTRAST, ["--on-accent", "--accent"]) >= 4.5


@pytest.mark.parametrize("size", [WIDE, PHONE])
def test_everything_has_a_name_that_is_read_out(open_page: OpenPage, size: dict[str, int]) -> None:
    page = open_page(Api(says("Hello.")), viewport=size)
    chat = ChatPage(page)
    chat.say("Hi")
    page.get_by_role("button", name="Settings").click()
    nameless = """() => [...document.querySelectorAll("button, input, textarea, select, nav, dialog, a")]
      .filter(each => !(each.getAttribute("aria-label") || each.getAttribute("aria-labelledby") || each.labels?.length
        || each.innerText.trim()) && each.checkVisibility({visibilityProperty: true}))
      .map(each => each.outerHTML)"""
    assert page.evaluate(nameless) == []


def test_a_conversation_is_had_by_keyboard_alone(open_page: OpenPage) -> None:
    api = Api(says("Hello."))
    page = open_page(api, viewport=NARROW)
    chat, keyboard = ChatPage(page), page.keyboard
    keyboard.press("/")
    keyboard.type("Hi")
    keyboard.press("Enter")
    chat.turn(1).locator(".answer-line").wait_for()
    keyboard.press("Escape")  # leaves the field
    keyboard.press("e")
    keyboard.type(" there")
    keyboard.press("Enter")
    expect(chat.turn(0).locator(".bubble")).to_have_text("Hi there")
    chat.turn(1).locator(".answer-line").wait_for()
    keyboard.press("r")
    expect(page.get_by_role("log")).to_have_attribute("aria-busy", "false")
    keyboard.press("n")
    assert chat.turns.count() == 0
    keyboard.type("Next")
    assert chat.field.input_value() == "Next"
    assert len(api.link.requests) == 3


def test_the_list_of_conversations_has_the_keyboard_while_it_is_open(open_page: OpenPage) -> None:
    page = open_page(Api(), viewport=PHONE)
    page.keyboard.press("l")
    expect(page.get_by_role("button", name="New conversation").first).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator(".conversations")).to_be_hidden()


def test_tab_reaches_every_button_and_shows_where_it_is(open_page: OpenPage) -> None:
    page = open_page(Api(), viewport=NARROW)
    reached = set()
    for _ in range(30):
        page.keyboard.press("Tab")
        name, outline = page.evaluate(
            """() => { const at = document.activeElement;
              if (at === document.body) return ["", "the browser's own"];
              return [at.ariaLabel ?? at.textContent.trim(), getComputedStyle(at).outlineStyle
                + getComputedStyle(at.closest(".composer") ?? at).boxShadow] }"""
        )
        assert outline not in ("nonenone", "none"), name
        reached.add(name)
    assert {"Chat", "Engine", "Theme: system", "Keys", "New conversation", "Settings", "Message", "Messages"} <= reached


def test_the_keys_are_listed_and_do_nothing_while_somebody_types(open_page: OpenPage) -> None:
    page = open_page(Api(), viewport=NARROW)
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog")
    shown = dialog.locator("th").all_inner_texts()
    assert {"1", "2", "3", "t", "n", "/", "e", "r", "g", "c", "?"} <= set(shown)
    assert len(shown) == len(set(shown))
    page.keyboard.press("Escape")
    assert dialog.count() == 0
    page.get_by_label("Message", exact=True).fill("")
    page.keyboard.type("n?2t")
    assert page.get_by_label("Message", exact=True).input_value() == "n?2t"
    assert dialog.count() == 0


def test_chat_and_engine_are_beside_each_other_where_there_is_room(open_page: OpenPage) -> None:
    page = open_page(Api())
    both = [page.get_by_role("region", name=name) for name in ("Chat", "Engine")]
    assert [each.is_visible() for each in both] == [True, True]
    page.keyboard.press("1")
    assert [each.is_visible() for each in both] == [True, False]
    page.keyboard.press("2")
    assert [each.is_visible() for each in both] == [False, True]
    page.set_viewport_size(PHONE)
    page.keyboard.press("3")
    assert [each.is_visible() for each in both] == [True, False]


def width_of(page: Page) -> int:
    """Of all that could be scrolled to sideways."""
    width: int = page.evaluate(
        """() => Math.max(document.documentElement.scrollWidth,
          ...[...document.querySelectorAll(".talk, .talk :not(pre *), .top *")]
            .map(each => each.getBoundingClientRect().right))"""
    )
    return width


def test_on_a_phone_nothing_is_wider_than_the_screen(open_page: OpenPage) -> None:
    text = f"{'A long answer. ' * 12}{'x' * 90}\n```\n{'y' * 90}\n```"
    api = Api(
        lambda request: [Explanation(hit=9, never_seen=len(request.input_ids) - 9, left_at=9), *says(text)(request)]
    )
    page = open_page(api, viewport=PHONE, has_touch=True, is_mobile=True)
    chat = ChatPage(page)
    chat.say("z" * 80)
    assert width_of(page) <= PHONE["width"]
    page.get_by_role("button", name="Why not cached?").click()
    page.get_by_role("button", name="Settings").click()
    assert width_of(page) <= PHONE["width"]
    page.get_by_role("button", name="Conversations").click()
    page.locator(".conversations").wait_for()
    assert width_of(page) <= PHONE["width"]
    page.get_by_role("button", name="Close the list").click(position={"x": 340, "y": 300})
    page.get_by_role("button", name="Keys").click()
    assert page.get_by_role("dialog").bounding_box()["width"] <= PHONE["width"]
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Engine").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]

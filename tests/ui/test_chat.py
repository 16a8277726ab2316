"""Talking on the page: streams, stopping, answering anew, changing what was said, settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect
from support.asgi import TOKENIZER, Api, says
from support.chat_page import NARROW, ChatPage
from support.page import OpenPage
from support.page_server import page_server
from support.scripted_link import Item, tokens
from support.tiny_model import EOS

from minisgl.core import Explanation
from minisgl.message import UserMsg

BEFORE_TEXT = 1  # token of a prompt, which decodes to nothing; then comes one a character


def slowly(text: str, seconds: float = 0.02) -> Iterable[Item]:
    for token in tokens(text):
        yield token
        yield seconds


def prompt_of(request: UserMsg) -> str:
    return TOKENIZER.decode(request.input_ids.tolist())


@pytest.fixture
def chat(open_page: OpenPage) -> ChatPage:
    """Its model says "Hello." to everything."""
    return ChatPage(open_page(Api(says("Hello.")), viewport=NARROW))


def test_an_answer_is_shown_with_its_figures(open_page: OpenPage) -> None:
    api = Api(lambda request: [*slowly("Hello."), EOS], cached_len=3)
    chat = ChatPage(open_page(api, viewport=NARROW))
    chat.say("Hi")
    assert (chat.bubble(0), chat.bubble(1)) == ("Hi", "Hello.")
    assert {"3 cached", "7 generated"} <= set(chat.figures(1))
    expect(chat.turn(1).locator(".figures")).to_contain_text("queue")
    names = " ".join(chat.figures(1))
    assert re.search(r"generated \S+ s queue \S+ m?s first token \S+ m?s total \S+ tokens/s$", names)


def test_an_answer_grows_while_it_comes(open_page: OpenPage) -> None:
    chat = ChatPage(open_page(Api(lambda request: slowly("one two three four five")), viewport=NARROW))
    chat.say("Count", wait=False)
    answer = chat.turn(1).locator(".bubble")
    expect(answer).to_contain_text("one")
    assert "five" not in answer.inner_text()
    expect(answer).to_have_text("one two three four five")


@pytest.mark.parametrize("way", ["button", "Escape"])
def test_stopping_ends_the_request_and_keeps_what_came(open_page: OpenPage, way: str) -> None:
    api = Api(lambda request: slowly("la " * 150))
    chat = ChatPage(open_page(api, viewport=NARROW))
    chat.say("Sing", wait=False)
    expect(chat.turn(1).locator(".bubble")).to_contain_text("la la")
    if way == "button":
        chat.page.get_by_role("button", name="Stop").click()
    else:
        chat.field.press("Escape")
    expect(chat.turn(1).locator(".end")).to_have_text("stopped")
    assert chat.bubble(1).startswith("la la")
    api.check_at_rest()
    assert api.link.aborted == [api.link.requests[0].uid]


def test_an_answer_is_written_anew_in_its_place(open_page: OpenPage) -> None:
    answers = iter(["first", "second", "third"])
    chat = ChatPage(open_page(Api(lambda request: [*tokens(next(answers)), EOS]), viewport=NARROW))
    chat.say("Hi")
    chat.say("More")
    assert [chat.bubble(index) for index in range(4)] == ["Hi", "first", "More", "second"]
    chat.press(1, "Regenerate")
    expect(chat.turn(1).locator(".bubble")).to_have_text("third")
    assert chat.turns.count() == 2


def test_the_model_reads_all_that_was_said(open_page: OpenPage) -> None:
    api = Api(says("Hello."))
    chat = ChatPage(open_page(api, viewport=NARROW))
    chat.say("Hi")
    chat.say("And you?")
    read = prompt_of(api.link.requests[1])
    assert [read.index(text) for text in ("Hi", "Hello.", "And you?")] == sorted(
        read.index(text) for text in ("Hi", "Hello.", "And you?")
    )


def test_a_question_that_is_changed_is_answered_anew_and_what_followed_is_gone(open_page: OpenPage) -> None:
    api = Api(says("Hello."))
    chat = ChatPage(open_page(api, viewport=NARROW))
    chat.say("Hi")
    chat.say("More")
    chat.press(0, "Edit")
    chat.page.get_by_label("Your message").fill("Good morning")
    chat.page.keyboard.press("Enter")
    expect(chat.turns).to_have_count(2)
    expect(chat.turn(1).locator(".answer-line")).to_be_visible()
    assert chat.bubble(0) == "Good morning"
    assert "Hi" not in prompt_of(api.link.requests[-1])


def test_an_answer_that_is_changed_is_what_the_model_reads_as_its_own(open_page: OpenPage) -> None:
    api = Api(says("Hello."))
    chat = ChatPage(open_page(api, viewport=NARROW))
    chat.say("Hi")
    chat.press(1, "Edit")
    chat.page.get_by_label("The model's message").fill("Good evening.")
    chat.page.get_by_role("button", name="Save").click()
    chat.say("Why?")
    read = prompt_of(api.link.requests[-1])
    assert "Good evening." in read
    assert "Hello." not in read


def test_leaving_an_edit_changes_nothing(chat: ChatPage) -> None:
    chat.say("Hi")
    chat.press(0, "Edit")
    chat.page.get_by_label("Your message").fill("Something else")
    chat.page.keyboard.press("Escape")
    assert (chat.bubble(0), chat.turns.count()) == ("Hi", 2)


def test_settings_are_sent_and_what_is_left_out_is_the_server_s(open_page: OpenPage) -> None:
    api = Api(says("Hello."))
    chat = ChatPage(open_page(api, viewport=NARROW))
    chat.page.get_by_role("button", name="Settings").click()
    for name, value in {"temperature": "0.5", "top_k": "7", "max_tokens": "4", "seed": "11"}.items():
        chat.page.get_by_label(name, exact=True).fill(value)
    chat.page.get_by_label("System prompt").fill("Be kind.")
    chat.say("Hi")
    params = api.link.requests[0].sampling_params
    assert (params.temperature, params.top_k, params.top_p, params.max_tokens, params.seed) == (0.5, 7, 1.0, 4, 11)
    assert "Be kind." in prompt_of(api.link.requests[0])
    assert (chat.bubble(1), chat.turn(1).locator(".end").inner_text()) == ("Hell", "cut at its limit")


def test_a_number_is_written_key_by_key(open_page: OpenPage) -> None:
    api = Api(says("Hello."))
    chat = ChatPage(open_page(api, viewport=NARROW))
    chat.page.get_by_role("button", name="Settings").click()
    chat.page.get_by_label("temperature").press_sequentially("0.25")
    chat.page.get_by_label("top_p").press_sequentially("7")  # too large: it is not taken
    chat.say("Hi")
    params = api.link.requests[0].sampling_params
    assert (params.temperature, params.top_p) == (0.25, 1.0)


def test_a_refusal_is_told_and_the_next_message_goes_through(open_page: OpenPage) -> None:
    api = Api(says("Hello."))
    chat = ChatPage(open_page(api, viewport=NARROW))
    chat.say("x" * 600)
    assert "512" in chat.turn(1).locator(".error").inner_text()
    chat.press(0, "Delete")
    chat.press(0, "Delete")
    chat.say("Hi")
    assert chat.bubble(1) == "Hello."


def test_an_error_in_the_middle_of_an_answer_is_told_with_what_came(open_page: OpenPage) -> None:
    api = Api(lambda request: [*tokens("Well"), 0.2, RuntimeError("broken")])
    chat = ChatPage(open_page(api, viewport=NARROW))
    chat.say("Hi")
    assert chat.bubble(1) == "Well"
    assert chat.turn(1).locator(".error").inner_text() == (
        "the engine could not go on with this request; the server's log says more"
    )


def test_a_server_that_goes_in_the_middle_of_an_answer_is_told_in_words(open_page: OpenPage) -> None:
    with page_server(Api(lambda request: [*tokens("Well"), 30.0]).app) as address:
        chat = ChatPage(open_page(server=address, viewport=NARROW))
        chat.say("Hi", wait=False)
        expect(chat.turn(1).locator(".bubble")).to_have_text("Well")
    expect(chat.turn(1).locator(".error")).to_have_text("the connection to the server broke off")
    assert chat.bubble(1) == "Well"


def test_each_line_goes_in_the_direction_of_its_script(open_page: OpenPage) -> None:
    chat = ChatPage(open_page(Api(says("\u05e9\u05dc\u05d5\u05dd\nHello, and more of it")), viewport=NARROW))
    chat.say("Hi")
    begins = (
        chat.turn(1)
        .locator(".bubble")
        .evaluate(
            """bubble => {
            const range = document.createRange(), box = bubble.getBoundingClientRect();
            range.selectNodeContents(bubble);
            const lines = [...range.getClientRects()].filter(({ width }) => width > 1);
            const side = ({ left, right }) => left - box.left < 2 ? "left" : box.right - right < 2 ? "right" : "";
            return lines.map(side);
        }"""
        )
    )
    assert begins == ["right", "left"]


def test_what_the_model_writes_is_text_and_never_a_part_of_the_page(open_page: OpenPage) -> None:
    evil = "<img src=x onerror=alert(1)>\n```\n<script>alert(2)</script>\n```\n**<b>bold</b>** `<i>`"
    page = open_page(Api(says(evil)), viewport=NARROW)
    page.on("dialog", lambda dialog: pytest.fail(dialog.message))
    chat = ChatPage(page)
    chat.say("<u>Hi</u>")
    assert chat.bubble(0) == chat.titles.first.inner_text() == "<u>Hi</u>"
    assert "<img src=x onerror=alert(1)>" in chat.bubble(1)
    assert chat.turn(1).locator("pre").inner_text() == "<script>alert(2)</script>"
    assert chat.turn(1).locator("strong").inner_text() == "<b>bold</b>"
    assert page.locator("#page :is(img, script, u, b:not(.figures b, .legend b), i)").count() == 0


def test_a_server_that_cannot_explain_is_asked_without(open_page: OpenPage) -> None:
    page = open_page(Api(says("Hello."), cached_len=3), viewport=NARROW)
    bodies = []

    def refuse(route: Route) -> None:
        bodies.append(route.request.post_data_json)
        if "explain" in bodies[-1]:
            error = {"message": "explain: no such field", "type": "x", "param": "explain", "code": None}
            route.fulfill(status=400, json={"error": error})
        else:
            route.continue_()

    page.route("**/v1/chat/completions", refuse)
    page.route("**/inspect/*", lambda route: route.fulfill(status=404, json={}))
    chat = ChatPage(page)
    chat.say("Hi")
    chat.say("Again")
    assert chat.bubble(1) == chat.bubble(3) == "Hello."
    assert "3 cached" in chat.figures(3)
    assert ["explain" in body for body in bodies] == [True, False, False]
    assert page.get_by_role("button", name="Why not cached?").count() == 0


def explained(open_page: OpenPage) -> tuple[Api, ChatPage]:
    """A chat whose prompts all have the explanation that the link has."""
    api = Api(lambda request: [api.link.explanation, *tokens("Hello."), EOS])
    return api, ChatPage(open_page(api, viewport=NARROW))


def test_it_is_told_why_a_prompt_was_not_cached(open_page: OpenPage) -> None:
    api, chat = explained(open_page)
    length = chat.count("What is it?")
    causes = {"hit": 12, "evicted": 3, "never_seen": length - 15}
    api.link.explanation = Explanation(**causes, left_at=15, evicted_s=4.0, evicted_tokens=70)
    chat.say("What is it?")
    assert {"12 cached", f"{length - 12} computed"} <= set(chat.figures(1))
    chat.page.get_by_role("button", name="Why not cached?").click()
    why = chat.turn(1).locator(".explained")
    sentences = [row.inner_text() for row in why.locator("ul > li").all()]
    assert [int(sentence.split()[0]) for sentence in sentences] == [12, 3, length - 15]
    assert "4.00 s and 70 evicted tokens earlier" in sentences[1]
    assert f"at token 15 of {length}" in why.inner_text()
    left = 15 - BEFORE_TEXT
    prompt = prompt_of(api.link.requests[0])
    assert why.locator(".common dd").inner_text() == f"…{prompt[left - 8 : left]}"
    assert why.locator(".new dd").inner_text() == "it?</s><s>…"


def lit(chat: ChatPage, index: int, *marks: tuple[str, str]) -> None:
    expect(chat.turn(index).locator("mark")).to_have_count(len(marks))
    assert chat.marks(index) == list(marks)


def test_a_turn_lights_up_where_it_stays_cached_while_it_is_changed(open_page: OpenPage) -> None:
    said = ("Tell me of trees", "Hello.")
    api, chat = explained(open_page)
    length = chat.count(*said)
    api.link.explanation = Explanation(never_seen=chat.count(said[0]))
    chat.say(said[0])
    begin = BEFORE_TEXT + prompt_of(api.link.requests[0]).index(said[0])
    api.link.explanation = Explanation(hit=begin + 8, evicted=3, never_seen=length - begin - 11, left_at=begin + 11)
    chat.press(0, "Edit")
    lit(chat, 0, ("hit", "Tell me "), ("evicted", "of "), ("never_seen", "trees"))
    lit(chat, 1, ("never_seen", "Hello."))
    assert chat.page.locator(".legend").inner_text().startswith(f"{begin + 8} of {length} tokens are cached")


@pytest.mark.parametrize("word", ["user", "use", "s"])
def test_a_word_of_the_template_lights_up_where_it_was_said(open_page: OpenPage, word: str) -> None:
    api, chat = explained(open_page)
    api.link.explanation = Explanation(never_seen=chat.count(word))
    chat.say(word)
    begin = BEFORE_TEXT + len("user: ")
    api.link.explanation = Explanation(hit=begin, never_seen=chat.count(word, "Hello.") - begin, left_at=begin)
    chat.press(0, "Edit")
    lit(chat, 0, ("never_seen", word))


def test_what_is_typed_is_not_lit_before_the_answer_is_there(open_page: OpenPage) -> None:
    api, chat = explained(open_page)
    api.link.explanation = Explanation(never_seen=chat.count("Tell me"))
    chat.say("Tell me")
    api.link.explanation = Explanation(hit=chat.count("Tell me", "Hello."))
    chat.press(0, "Edit")
    lit(chat, 0, ("hit", "Tell me"))
    chat.page.route("**/cache/explain", lambda route: None)
    chat.page.get_by_label("Your message").fill("Tell him")
    lit(chat, 0, ("hit", "Tell "))


def test_the_whole_conversation_and_what_is_being_written_light_up_on_demand(open_page: OpenPage) -> None:
    api, chat = explained(open_page)
    api.link.explanation = Explanation(never_seen=chat.count("Hi"))
    chat.say("Hi")
    api.link.explanation = Explanation(hit=chat.count("Hi", "Hello.", "And"))
    assert chat.page.locator("mark").count() == 0
    chat.page.get_by_role("button", name="Cached", exact=True).click()
    chat.field.fill("And")
    expect(chat.page.locator(".composer mark")).to_have_text("And")
    lit(chat, 0, ("hit", "Hi"))
    chat.page.get_by_role("button", name="Cached", exact=True).click()
    expect(chat.page.locator("mark")).to_have_count(0)


def test_each_conversation_is_for_itself_and_is_there_after_a_reload(chat: ChatPage) -> None:
    page = chat.page
    chat.say("The first one")
    page.get_by_role("button", name="New conversation").first.click()
    assert chat.turns.count() == 0
    chat.say("The second one")
    assert chat.titles.all_inner_texts() == ["The second one", "The first one"]
    reloaded(page)
    chat.titles.nth(1).click()
    assert chat.bubble(0) == "The first one"
    assert "7 generated" in chat.figures(1)


def test_a_conversation_is_renamed_and_deleted(chat: ChatPage) -> None:
    page = chat.page
    chat.say("The first one")
    chat.titles.first.hover()
    page.get_by_role("button", name="Rename The first one").click()
    page.get_by_label("Title").fill("About <b>ones</b>")
    page.keyboard.press("Enter")
    assert chat.titles.all_inner_texts() == ["About <b>ones</b>"]
    reloaded(page)
    assert chat.titles.all_inner_texts() == ["About <b>ones</b>"]
    chat.titles.first.hover()
    page.get_by_role("button", name="Delete About").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    reloaded(page)
    assert chat.titles.all_inner_texts() == ["New conversation"]
    assert page.evaluate("Object.keys(localStorage).filter(key => key.startsWith('minisgl-chat:')).length") == 0


def test_an_answer_goes_on_while_another_conversation_is_looked_at(open_page: OpenPage) -> None:
    chat = ChatPage(open_page(Api(lambda request: slowly("one two three four five", 0.05)), viewport=NARROW))
    chat.say("Count", wait=False)
    expect(chat.turn(1).locator(".bubble")).to_contain_text("one")
    chat.page.get_by_role("button", name="New conversation").first.click()
    assert chat.turns.count() == 0
    chat.titles.nth(1).click()
    expect(chat.turn(1).locator(".bubble")).to_have_text("one two three four five")


def reloaded(page: Page) -> None:
    page.wait_for_timeout(500)  # until it is saved
    page.reload()
    page.locator('.connection[data-state="ready"]').wait_for()


def going_on(text: str, seconds: float = 0.0) -> Callable[[UserMsg], Iterable[Item]]:
    """A model that writes this text, and takes it up behind as many of its tokens as the prompt ends with."""
    ids, beginnings = [*tokens(text), EOS], list[list[int]]()

    def script(request: UserMsg) -> Iterable[Item]:
        prompt = request.input_ids.tolist()
        begun = next((each for each in beginnings if prompt[: len(each)] == each), prompt)
        if begun is prompt:
            beginnings.append(prompt)
        said = prompt[len(begun) :]
        assert said == ids[: len(said)], "the prompt does not end with the tokens of the answer"
        for token in ids[len(said) :]:
            yield token
            if seconds:
                yield seconds

    return script


def limit(chat: ChatPage, max_tokens: int) -> None:
    chat.page.get_by_role("button", name="Settings").click()
    chat.page.get_by_label("max_tokens").fill(str(max_tokens))


def go_on(chat: ChatPage, index: int = 1) -> None:
    """Once, until its end."""
    with chat.page.expect_response(lambda response: response.url.endswith("completions")):
        chat.turn(index).get_by_role("button", name="Go on").click()
    expect(chat.page.get_by_role("button", name="Stop")).to_have_count(0)


def saved_turns(chat: ChatPage) -> list[dict[str, Any]]:
    """Of the only conversation, which is saved at once when the page is left."""
    turns: list[dict[str, Any]] = chat.page.evaluate(
        """() => {
            dispatchEvent(new Event("pagehide"));
            const name = Object.keys(localStorage).find(each => each.startsWith("minisgl-chat:"));
            return JSON.parse(localStorage.getItem(name)).turns;
        }"""
    )
    return turns


def test_no_answer_runs_for_ever_and_what_holds_is_said(open_page: OpenPage) -> None:
    api = Api(says("Hello."))
    chat = ChatPage(open_page(api, viewport=NARROW))
    chat.say("Hi")
    assert api.link.requests[0].sampling_params.max_tokens == 512
    expect(chat.turn(1).get_by_role("button", name="Go on")).to_have_count(0)  # it ended by itself
    chat.page.get_by_role("button", name="Settings").click()
    expect(chat.page.locator(".sampling .defaults")).to_have_text(
        "Where nothing is set: temperature 1, at most 512 tokens at a time."
    )
    assert chat.page.get_by_label("max_tokens").get_attribute("placeholder") == "512"


@pytest.mark.parametrize("text", ["one two three", "a🦀b🦀🦀c", "  two\n\n"])
@pytest.mark.parametrize("max_tokens", [3, 5])
def test_going_on_takes_an_answer_up_token_by_token(open_page: OpenPage, text: str, max_tokens: int) -> None:
    """Even within a character, of which no text tells the first bytes."""
    api = Api(going_on(text))
    chat = ChatPage(open_page(api, viewport=NARROW))
    limit(chat, max_tokens)
    chat.say("Count")
    num_tokens = max_tokens
    while num_tokens < len(tokens(text)) + 1:
        expect(chat.turn(1).locator(".end")).to_have_text("cut at its limit")
        go_on(chat)
        num_tokens += max_tokens
    expect(chat.turn(1).get_by_role("button", name="Go on")).to_have_count(0)
    assert saved_turns(chat)[1]["text"] == text
    prompts = [request.input_ids.tolist() for request in api.link.requests]
    first = prompts[0]
    assert prompts == [first + tokens(text)[: i * max_tokens] for i in range(len(prompts))]


def test_a_stopped_answer_goes_on_behind_what_came(open_page: OpenPage) -> None:
    text = "la " * 60
    api = Api(going_on(text, seconds=0.01))
    chat = ChatPage(open_page(api, viewport=NARROW))
    chat.say("Sing", wait=False)
    expect(chat.turn(1).locator(".bubble")).to_contain_text("la la")
    chat.page.get_by_role("button", name="Stop").click()
    expect(chat.turn(1).locator(".end")).to_have_text("stopped")
    before = chat.bubble(1)
    chat.page.keyboard.press("Escape")
    chat.page.locator(".turns").focus()
    chat.page.keyboard.press("g")
    expect(chat.turn(1).locator(".bubble")).to_have_text(text.strip())
    assert text.startswith(before)
    assert len(api.link.requests) == 2


def test_an_answer_that_was_written_anew_or_read_from_the_browser_goes_on(open_page: OpenPage) -> None:
    api = Api(going_on("one two three"))
    chat = ChatPage(open_page(api, viewport=NARROW))
    limit(chat, 7)
    chat.say("Count")
    chat.press(1, "Regenerate")
    expect(chat.turn(1).locator(".end")).to_have_text("cut at its limit")
    assert len(saved_turns(chat)) == 2
    chat.page.reload()
    go_on(chat)
    expect(chat.turn(1).locator(".bubble")).to_have_text("one two three")


def test_an_answer_that_was_changed_goes_on_behind_its_new_text(open_page: OpenPage) -> None:
    api = Api(lambda request: [*tokens(" and more"), EOS])
    chat = ChatPage(open_page(api, viewport=NARROW))
    limit(chat, 4)
    chat.say("Count")
    chat.press(1, "Edit")
    chat.page.get_by_label("The model's message").fill("Un, deux")
    chat.page.get_by_role("button", name="Save").click()
    go_on(chat)
    expect(chat.turn(1).locator(".bubble")).to_have_text("Un, deux and")
    assert prompt_of(api.link.requests[1]).endswith("Un, deux")
    go_on(chat)
    assert prompt_of(api.link.requests[2]).endswith("Un, deux and")


def test_only_the_last_answer_goes_on(open_page: OpenPage) -> None:
    chat = ChatPage(open_page(Api(says("one two three")), viewport=NARROW))
    limit(chat, 4)
    chat.say("Count")
    chat.field.fill("More")
    chat.field.press("Enter")
    expect(chat.turn(3).get_by_role("button", name="Go on")).to_be_visible()
    expect(chat.turn(1).get_by_role("button", name="Go on")).to_have_count(0)

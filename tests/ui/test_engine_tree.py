"""The radix tree on the page: drawn, pointed at, walked by keys, zoomed, searched, folded."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect
from support.engine_page import ROOT, box_of, drawing, painted, painted_colours, show_engine
from support.mock_engine import MockEngine
from support.mock_tree import MockTree
from support.page import OpenPage


@pytest.fixture
def engine() -> MockEngine:
    """One system prompt of 100 tokens with two chats of 300 and 100 below it, and a smaller one beside it."""
    tree = MockTree(1)
    system = tree.add(0, 100).id
    chat = tree.add(system, 300).id
    tree.add(system, 100)
    tree.add(0, 50)
    tree.nodes[system].text = "You are helpful."
    tree.nodes[chat].text = "<img src=x onerror=alert(1)>"
    tree.count()
    tree.lock([chat])
    return MockEngine(tree)


@pytest.fixture
def page(open_page: OpenPage, engine: MockEngine) -> Page:
    page = show_engine(open_page(engine))
    drawing(page).wait_for()
    return page


SYSTEM = (ROOT + 30, 40)
CHAT = (ROOT + 250, 40)  # the columns are at most 220 pixels wide


def point(page: Page, place: tuple[int, int]) -> str:
    """What is said of it."""
    drawing(page).hover(position={"x": place[0], "y": place[1]})
    return page.locator(".tooltip").inner_text()


def drawn(page: Page) -> int:
    label = drawing(page).get_attribute("aria-label")
    found = re.search(r"(\d+) of them drawn", label or "")
    assert found is not None
    return int(found[1])


def test_it_is_drawn_with_its_size_in_words(page: Page) -> None:
    expect(page.locator(".tree header")).to_contain_text("550 tokens in 4 nodes")
    assert painted(drawing(page)) > 1000
    assert drawn(page) == 5  # everything, and the nodes


def test_pointing_tells_tokens_locks_and_age(page: Page) -> None:
    said = point(page, SYSTEM)
    assert "You are helpful." in said
    assert "500 tokens in 3 nodes" in said
    assert "1: held by requests" in said
    assert "use of the cache ago" in said


def test_a_prompts_text_is_never_taken_for_html(page: Page) -> None:
    assert "<img src=x onerror=alert(1)>" in point(page, CHAT)
    assert page.locator(".engine img").count() == 0


def test_a_click_shows_who_uses_it(page: Page, engine: MockEngine) -> None:
    drawing(page).click(position={"x": SYSTEM[0], "y": SYSTEM[1]})
    details = page.get_by_role("complementary", name="Node")
    expect(details).to_contain_text("chat-00000 decode")
    expect(details).to_contain_text("tokens 0 to 100")
    details.get_by_role("button", name="Close").click()
    expect(details).to_have_count(0)


def test_what_is_looked_at_may_be_evicted(page: Page, engine: MockEngine) -> None:
    drawing(page).click(position={"x": SYSTEM[0], "y": SYSTEM[1]})
    details = page.get_by_role("complementary", name="Node")
    expect(details).to_contain_text("chat-00000")
    engine.gone.add(1)
    expect(details).to_contain_text("no longer in the tree")


def test_a_double_click_zooms_and_the_trail_leads_back(page: Page) -> None:
    with page.expect_request("**/inspect/tree?node=2&**"):
        drawing(page).dblclick(position={"x": CHAT[0], "y": CHAT[1]})
    trail = page.get_by_role("navigation", name="Where in the tree")
    expect(trail.get_by_role("button")).to_have_count(3)
    expect(drawing(page)).to_have_attribute("aria-label", re.compile("1 of them drawn"))
    with page.expect_request("**/inspect/tree?max_nodes=*"):
        trail.get_by_role("button", name="Everything").click()
    expect(drawing(page)).to_have_attribute("aria-label", re.compile("5 of them drawn"))


def test_a_zoomed_node_that_goes_leads_back(page: Page, engine: MockEngine) -> None:
    trail = page.get_by_role("navigation", name="Where in the tree").get_by_role("button")
    drawing(page).dblclick(position={"x": CHAT[0], "y": CHAT[1]})
    expect(trail).to_have_count(3)
    engine.gone |= {1, 2}
    expect(trail).to_have_count(1)
    expect(drawing(page)).to_have_attribute("aria-label", re.compile("5 of them drawn"))


def test_keys_walk_through_it_and_zoom(page: Page) -> None:
    drawing(page).focus()
    spoken = page.locator("#tree-spoken")
    page.keyboard.press("ArrowRight")
    expect(spoken).to_contain_text("You are helpful.")
    page.keyboard.press("ArrowDown")
    expect(spoken).to_contain_text("50, up to 50 of the prompt")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowRight")
    expect(spoken).to_contain_text("300, up to 400 of the prompt")
    page.keyboard.press("ArrowLeft")
    with page.expect_request("**/inspect/tree?node=1&**"):
        page.keyboard.press("Enter")
    with page.expect_request("**/inspect/tree?max_nodes=*"):
        page.keyboard.press("Backspace")
    page.keyboard.press("Space")
    expect(page.get_by_role("complementary", name="Node")).to_contain_text("100 tokens")


def test_a_prompt_is_looked_up_as_the_server_would(page: Page, engine: MockEngine) -> None:
    engine.path = {"prompt_tokens": 120, "matched_tokens": 100, "nodes": [0, 1]}
    search = page.get_by_role("search")
    search.get_by_role("searchbox").fill("You are helpful. And new")
    with page.expect_request("**/inspect/path") as asked:
        search.get_by_role("button", name="Find").click()
    assert asked.value.post_data_json == {"messages": [{"role": "user", "content": "You are helpful. And new"}]}
    expect(search).to_contain_text("100 of 120 tokens cached.")


def test_shown_text_is_searched_as_it_is_typed(page: Page, engine: MockEngine) -> None:
    search = page.get_by_role("search")
    search.get_by_role("searchbox").fill("ONERROR")
    expect(search).to_contain_text("1 node with this text")
    assert engine.asked["/inspect/path"] == 0


def test_colour_by_owner_has_its_legend(open_page: OpenPage) -> None:
    page = show_engine(open_page(MockEngine(MockTree(30, num_namespaces=3))))
    page.get_by_role("button", name="Owner").click()
    marks = page.locator(".tree .marks")
    for owner in ("public", "salt no. 1", "salt no. 2"):
        expect(marks).to_contain_text(owner)


def test_the_biggest_prefixes_are_a_table_too(page: Page) -> None:
    page.get_by_text("Biggest prefixes as a table").click()
    rows = page.locator(".biggest tbody tr")
    expect(rows).to_have_count(4)
    assert "500" in rows.first.inner_text()
    rows.first.get_by_role("button", name="Users").click()
    expect(page.get_by_role("complementary", name="Node")).to_contain_text("100 tokens")


def test_it_glides_to_what_is_new_and_comes_to_rest(open_page: OpenPage) -> None:
    """What the other tests leave out, as they ask for no motion."""
    engine = MockEngine(MockTree(200), grows=True)
    page = show_engine(open_page(engine, reduced_motion="no-preference"))
    drawing(page).wait_for()
    asked = engine.asked["/inspect/tree"]
    while engine.asked["/inspect/tree"] < asked + 2:
        page.wait_for_timeout(100)
    page.get_by_role("button", name="Pause").click()
    page.wait_for_timeout(500)
    at_rest = drawing(page).evaluate("canvas => canvas.toDataURL()")
    page.wait_for_timeout(500)
    assert drawing(page).evaluate("canvas => canvas.toDataURL()") == at_rest


def test_the_theme_changes_its_colours_at_once(page: Page) -> None:
    page.get_by_role("button", name="Pause").click()
    page.wait_for_timeout(300)
    light = drawing(page).evaluate("canvas => canvas.toDataURL()")
    page.emulate_media(color_scheme="dark")
    page.wait_for_timeout(300)
    assert drawing(page).evaluate("canvas => canvas.toDataURL()") != light


def test_an_empty_tree_says_how_it_grows(open_page: OpenPage) -> None:
    page = show_engine(open_page(MockEngine(MockTree(1))))
    expect(page.locator(".tree")).to_contain_text("Send a prompt in Chat")


def test_a_tree_that_grows_is_drawn_as_it_grows(open_page: OpenPage) -> None:
    page = show_engine(open_page(MockEngine(MockTree(100), grows=True)))
    drawing(page).wait_for()
    size = page.locator(".tree header .number")
    before = size.inner_text()
    expect(size).not_to_have_text(before)


def test_colours_say_something_where_the_system_forces_its_own(open_page: OpenPage) -> None:
    page = show_engine(open_page(MockEngine(), forced_colors="active"))
    drawing(page).wait_for()
    colours = page.locator(".cause-bar").first.evaluate(
        "bar => new Set([...bar.children].map(each => getComputedStyle(each).backgroundColor)).size"
    )
    assert colours > 2
    assert painted_colours(drawing(page)) > 4


@pytest.mark.parametrize("unfolded", [False, True], ids=["folded by the server", "all of them"])
def test_a_hundred_thousand_nodes_are_folded_to_what_can_be_seen(open_page: OpenPage, unfolded: bool) -> None:
    engine = MockEngine(MockTree(100_000, num_namespaces=3), with_text=False, unfolded=unfolded)
    page = show_engine(open_page(engine))
    drawing(page).wait_for()
    assert 20 < drawn(page) < 1000
    expect(page.locator(".tree header")).to_contain_text("100k nodes")


def test_what_is_folded_can_be_seen_alone(open_page: OpenPage) -> None:
    tree = MockTree(1)
    tree.add(0, 10_000)
    for _ in range(400):
        tree.add(0, 20)
    tree.count()
    page = show_engine(open_page(MockEngine(tree)))
    drawing(page).wait_for()
    below = box_of(drawing(page))["height"] - 20
    assert "400 more" in point(page, (SYSTEM[0], int(below)))
    drawing(page).click(position={"x": SYSTEM[0], "y": below})
    expect(page.get_by_role("navigation", name="Where in the tree")).to_contain_text(
        "the smaller ones, up to 20 tokens"
    )

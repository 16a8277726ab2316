"""`minisgl tree`: the tree of a running server in every form."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.page_server import page_server
from support.scripted_link import ScriptedLink, make_engine_client, tokens
from support.server_app import make_app, make_state

from minisgl.core.picture import TreePicture
from minisgl.message import TreeMsg
from minisgl.server.config import ServerConfig

EVIL = 'a "b" \\ <script>\x1b[31m\n&'


def picture(*, with_text: bool) -> TreePicture:
    """[root [7 [8]] [9, folded: 2 more]], and another namespace."""
    rows = [
        *(-1, 0, 1290, 6, 0, 0, 0, 0, 0),
        *(0, 1000, 1250, 2, 2, 0, 0, 0, 0),
        *(1, 250, 250, 1, 0, 7, 0, 0, 0),
        *(0, 10, 40, 3, 0, 90, 0, 2, 30),
        *(-1, 0, 5, 2, 0, 0, 4, 1, 5),
    ]
    heads = [tokens(text) if with_text else [] for text in ("", EVIL, "b", "c", "")]
    return TreePicture(
        clock=100,
        page_size=1,
        num_nodes=6,
        num_tokens=1295,
        num_namespaces=2,
        above=[],
        ids=[1, 7, 8, 9, 3],
        rows=np.array(rows, np.int32),
        head_lens=np.array([len(head) for head in heads] if with_text else [], np.int32),
        heads=np.array([token for head in heads for token in head], np.int32),
        salts=["", "te\x1bam"] if with_text else [],
    )


@pytest.fixture
def link() -> ScriptedLink:
    link = ScriptedLink()
    link.picture = picture(with_text=False)
    return link


@pytest.fixture
def url(link: ScriptedLink) -> Iterator[str]:
    with page_server(make_app(make_state(engine=make_engine_client(link=link)))) as url:
        yield url


@pytest.fixture
def telling(link: ScriptedLink) -> Iterator[str]:
    """A server that shows texts, and wants a key."""
    link.picture = picture(with_text=True)
    config = ServerConfig(ui_show_text=True, api_key="k")
    with page_server(make_app(make_state(config, engine=make_engine_client(link=link)))) as url:
        yield url


def test_as_text_it_is_a_line_a_node(run: Any, url: str, link: ScriptedLink) -> None:
    assert run("tree", "--url", url).out.splitlines() == [
        "1,295 tokens in 6 nodes of 2 namespaces",
        "public namespace: 1,290 tokens",
        "  1,000 tokens (1,250 with all below), 2 locks, age 0",
        "    250 tokens, age 7",
        "  10 tokens (40 with all below), age 90",
        "    ... 2 more branches, 30 tokens",
        "namespace 4: 5 tokens",
        "  ... 1 more branch, 5 tokens",
    ]
    (asked,) = link.asked
    assert isinstance(asked, TreeMsg)
    assert asked.max_nodes == 50


def test_texts_are_shown_if_the_server_does_and_obeyed_by_no_terminal(run: Any, telling: str) -> None:
    out = run("tree", "--url", telling, "--api-key", "k").out
    assert "\x1b" not in out
    assert """2 locks, age 0: 'a "b" \\\\ <script>[31m⏎&'""" in out
    assert "namespace 4 'team': 5 tokens" in out


def test_as_json_it_is_the_servers_answer(run: Any, url: str, link: ScriptedLink) -> None:
    answer = json.loads(run("tree", "--url", url, "--format", "json", "--max-nodes", "7", "--node", "7").out)
    assert [node["id"] for node in answer["nodes"]] == [1, 7, 8, 9, 3]
    (asked,) = link.asked
    assert isinstance(asked, TreeMsg)
    assert (asked.node, asked.max_nodes) == (7, 7)


def test_as_dot_every_label_is_closed_and_every_edge_has_its_ends(run: Any, telling: str) -> None:
    out = run("tree", "--url", telling, "--api-key", "k", "--format", "dot").out
    assert out.startswith("digraph tree {\n")
    assert out.endswith("}\n")
    labels = re.findall(r'^  (\w+) \[label="(?:[^"\\]|\\.)*"(?:, style=\w+)?\]$', out, re.MULTILINE)
    edges = re.findall(r"^  (\w+) -> (\w+)$", out, re.MULTILINE)
    assert labels == ["n1", "n7", "n8", "n9", "r9", "n3", "r3"]
    assert edges == [("n1", "n7"), ("n7", "n8"), ("n1", "n9"), ("n9", "r9"), ("n3", "r3")]
    assert len(out.splitlines()) == 3 + len(labels) + len(edges) + 1


class Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_as_html_it_is_one_file_that_needs_no_other_and_runs_nothing(run: Any, telling: str, tmp_path: Path) -> None:
    file = tmp_path / "tree.html"
    assert run("tree", "--url", telling, "--api-key", "k", "--output", str(file)).out == ""
    page = file.read_text()
    parser = Parser()
    parser.feed(page)
    assert not {"script", "link", "img", "iframe", "object"} & set(parser.tags)
    assert not {"src", "href", "style", "onclick"} & {name for name, _ in parser.attributes}
    assert "url(" not in page
    assert "http" not in page
    assert parser.tags.count("title") == 1 + 7
    assert any("<script>[31m⏎&" in text for text in parser.texts)
    assert html.escape("<script>") in page


def luminance(colour: str) -> float:
    """By WCAG 2."""
    digits = colour.removeprefix("#")
    pairs = [digits[i : i + 2] for i in (0, 2, 4)] if len(digits) == 6 else [digit * 2 for digit in digits]
    parts = [int(pair, 16) / 255 for pair in pairs]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_boxes_can_be_seen_and_read_whatever_their_age(run: Any, url: str, scheme: int) -> None:
    page = run("tree", "--url", url, "--format", "html").out
    colours = {
        name: both[scheme] for name, *both in re.findall(r"([\w-]+)(?: { fill)?: light-dark\((.+?), (.+?)\)", page)
    }
    for box in ("a0", "a1", "a2", "a3", "a4", "--rest"):
        assert contrast(colours[box], colours["background"]) > 1.3, box
        assert contrast(colours[box], colours["--ink"]) > 4.5, box


@pytest.mark.parametrize("form", ["text", "json", "html"])
def test_where_no_texts_are_shown_it_is_said_which_flag_shows_them(
    run: Any, url: str, telling: str, link: ScriptedLink, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setattr("minisgl.cli.session._is_terminal", lambda: True)
    assert run("tree", "--url", telling, "--api-key", "k", "--format", form).err == ""
    link.picture = picture(with_text=False)
    assert run("tree", "--url", url, "--format", form).err.count("minisgl serve --ui-show-text") == 1


@pytest.mark.parametrize(
    ("name", "begin"),
    [("t.txt", "1,295 tokens"), ("t.json", "{"), ("t.DOT", "digraph"), ("t.html", "<!doctype"), ("t", "1,295 tokens")],
)
def test_a_files_ending_says_what_to_make(run: Any, url: str, tmp_path: Path, name: str, begin: str) -> None:
    assert run("tree", "--url", url, "-o", str(tmp_path / name)).code == 0
    assert (tmp_path / name).read_text().startswith(begin)


@pytest.mark.parametrize("name", ["t.svg", "t.png", "t.gv"])
def test_an_ending_of_another_kind_is_refused_unless_it_is_said_what_to_make(
    run: Any, url: str, link: ScriptedLink, tmp_path: Path, name: str
) -> None:
    done = run("tree", "--url", url, "-o", str(tmp_path / name))
    assert (done.code, link.asked) == (2, [])
    assert "end it in .txt, .json, .dot, .html, or say with --format what to make" in done.err
    assert not (tmp_path / name).exists()
    assert run("tree", "--url", url, "-o", str(tmp_path / name), "--format", "dot").code == 0
    assert (tmp_path / name).read_text().startswith("digraph")


def test_boxes_lie_within_that_of_their_parent(run: Any, url: str) -> None:
    out = run("tree", "--url", url, "--format", "html").out
    boxes = re.findall(r'<svg x="([\d.]+)%" y="(\d+)" width="([\d.]+)%"', out)
    root, seven, eight, nine, other, *rest = [(float(x), float(x) + float(width), int(y)) for x, y, width in boxes]
    for parent, child in ((root, seven), (seven, eight), (root, nine), (nine, rest[0]), (other, rest[1])):
        assert child[2] > parent[2]
        assert parent[0] - 0.001 <= child[0] <= child[1] <= parent[1] + 0.001
    assert (root[0], other[1]) == (0.0, pytest.approx(100, abs=0.001))
    assert seven[1] <= nine[0] + 0.001


def test_what_cannot_be_is_an_error(run: Any, url: str, telling: str, link: ScriptedLink, tmp_path: Path) -> None:
    def error_of(*flags: str) -> str:
        done = run("tree", *flags)
        assert done.code == 2
        return str(done.err)

    assert "API key" in error_of("--url", telling)
    assert "no folder" in error_of("--url", url, "--output", str(tmp_path / "no" / "x.dot"))
    link.picture = None
    assert error_of("--url", url, "--node", "5").startswith("error: the server: there is no node 5")
    assert "does a server run there" in error_of("--url", "http://127.0.0.1:9")

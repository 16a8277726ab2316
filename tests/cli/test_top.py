"""`minisgl top`: frames of what a server does, in any terminal, whatever becomes of the server."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from rich.cells import cell_len
from rich.console import Console
from support.acting_link import ActingLink, request_now
from support.page_server import page_server
from support.scripted_link import make_engine_client
from support.server_app import make_app, make_state

from minisgl.cli import top
from minisgl.cli.top import Watch
from minisgl.cli.top_frame import Frame
from minisgl.cli.top_view import View
from minisgl.server.schema.tree import Tree, TreeNode


def node(number: int, parent: int | None, tokens: int, subtree: tuple[int, int], locks: int, **text: str) -> TreeNode:
    """subtree: its tokens and nodes."""
    places = {"id": number, "parent": parent, "namespace": 0, "age": 0, "folded_nodes": 0, "folded_tokens": 0}
    sizes = {"tokens": tokens, "subtree_tokens": subtree[0], "subtree_nodes": subtree[1], "locks": locks}
    return TreeNode(**places, **sizes, **text)


TREE = Tree(
    clock=9,
    page_size=1,
    num_nodes=4,
    num_tokens=900,
    num_namespaces=1,
    root=0,
    above=[],
    nodes=[
        node(0, None, 0, (900, 5), 1),
        node(4, 0, 20, (200, 2), 0),
        node(7, 0, 30, (700, 2), 1, text="You\x1b are\u202e\n"),
        node(8, 7, 670, (670, 1), 1),
    ],
)


@contextlib.contextmanager
def serving(link: ActingLink, **state: Any) -> Iterator[str]:
    with page_server(make_app(make_state(**{"engine": make_engine_client(link=link), **state}))) as url:
        yield url


def drawn(view: View, width: int = 120, height: int | None = None, encoding: str = "utf-8") -> list[str]:
    """The lines of a frame; of a whole screen if it has a height."""
    sink = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="")
    console = Console(file=sink, width=width, highlight=False)
    options = console.options.update(height=height) if height else console.options
    for line in console.render_lines(Frame(view), options, pad=False):
        sink.write("".join(segment.text for segment in line) + "\n")
    sink.seek(0)
    return sink.read().splitlines()


def looked(link: ActingLink) -> View:
    with serving(link) as url:
        watch = Watch(url, None)
        watch.look()
        return watch.look()


def test_once_prints_one_frame_with_all_there_is_to_say(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    with serving(ActingLink()) as url:
        done = run("top", "--url", url, "--once", "--interval", "0.1")
    assert done.code == 0, done.err
    for text in (
        f"a-model at {url}  up 1 min 41 s",
        "2 running, 1 waiting",
        "0 prefill, 2 decode",
        "8.0 tokens/s",
        "2.0/s, device 75% busy",
        "2.0 decodes, 0.0 tokens",
        "in use 500, cached 200, free 300 of 1,000 tokens",
        "0.5x 10.0%  1x 20.0%  2x 30.0%  4x 35.0%  8x 40.0%",
    ):
        assert text in done.out, text
    rows = [line.split() for line in done.out.splitlines()]
    assert ["waiting", "3", "9", "4", "11", "3", "3.0", "s", "1"] in rows
    assert any(row[1:5] == ["cached", "60", "75.0%", "█" * 15] for row in rows)
    assert "evicted     0" not in done.out
    assert "biggest prefixes" not in done.out


def test_the_biggest_prefixes_come_first_and_write_nothing_into_the_terminal() -> None:
    view = looked(ActingLink())
    view.take_tree(TREE)
    text = "\n".join(drawn(view))
    assert text.index("You are") < text.index("#4")
    assert "#8" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text  # the rest of its line would be read from right to left


@pytest.mark.parametrize("width", [200, 140, 100, 80, 76, 60, 40, 28])
@pytest.mark.parametrize("text", ["", "You are a helpful assistant. " * 9, "你是一个乐于助人的助手，请回答" * 9, "hi"])
def test_numbers_of_prefixes_are_whole_however_little_room_there_is(width: int, text: str) -> None:
    view, named = looked(ActingLink()), {"text": text} if text else {}
    nodes = [node(0, None, 0, (900, 5), 1), node(7, 0, 1_234_567, (23_456_789, 98_765), 3, **named)]
    view.take_tree(msgspec.structs.replace(TREE, nodes=[*nodes, node(4, 0, 20, (200, 2), 0)]))
    lines = drawn(view, width)
    assert max(map(cell_len, lines)) <= width
    row = next(line for line in lines if "23,456,789" in line).rstrip("│ ").rpartition("│")[2]
    numbers = [word for word in row.split() if word[0].isdigit()]
    assert "23,456,789" in numbers
    assert set(numbers) <= {"1,234,567", "23,456,789", "98,765", "3"}
    assert len(numbers) == 4 or width < 140
    assert any("#4 " in line for line in lines)


@pytest.mark.parametrize("width", [200, 100, 80, 40, 20])
def test_any_width_will_do(width: int) -> None:
    lines = drawn(looked(ActingLink()), width)
    assert max(map(len, lines)) <= width
    assert any("KV pool" in line for line in lines)


def test_as_many_requests_are_shown_as_there_are_lines_for() -> None:
    link = ActingLink()
    link.requests_now = [request_now(uid) for uid in range(100)]
    view = looked(link)
    assert len(drawn(view, 120, 40)) <= 40
    text = "\n".join(drawn(view, 120, 40))
    assert "of 100" in text
    assert sum(line.startswith("decode ") for line in drawn(view, 120)) == 20


def test_a_terminal_of_few_letters_is_enough() -> None:
    assert all(line.isascii() for line in drawn(looked(ActingLink()), encoding="ascii"))


def test_a_terminal_that_cannot_be_drawn_on_gets_frame_after_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    sink = io.StringIO()
    with top._screen(Console(file=sink, force_terminal=True, width=80)) as show:
        show("one")
        show("two")
    assert sink.getvalue() == "one\ntwo\n"


@pytest.mark.parametrize("seconds", ["inf", "nan", "0"])
def test_no_time_between_two_looks_is_refused(run: Any, seconds: str) -> None:
    assert "Invalid value for '--interval'" in run("top", "--interval", seconds).err


def test_a_server_that_is_gone_is_looked_for_again() -> None:
    link = ActingLink()
    with serving(link) as url:
        watch = Watch(url, None)
        watch.look_again()
    gone = watch.look_again()
    assert gone.trouble is not None
    assert any("does a server run there?; trying again" in line for line in drawn(gone))
    assert any("2 running" in line for line in drawn(gone))
    with page_server(make_app(make_state(engine=make_engine_client(link=link))), int(url.rpartition(":")[2])):
        assert watch.look_again().trouble is None


def test_a_server_that_loads_says_so() -> None:
    with serving(ActingLink(), engine=None) as url:
        view = Watch(url, None).look_again()
    assert drawn(view) == [f"minisgl top   at {url}", "the model is being loaded; trying again"]


def test_another_engine_is_no_slow_one() -> None:
    with serving(ActingLink(restarts_at=1)) as url:
        watch = Watch(url, None)
        watch.look()
        assert watch.look().pace is None
        assert not any("tokens/s" in line for line in drawn(watch.look()))


def test_a_wrong_key_or_address_ends_it(run: Any) -> None:
    assert "does a server run there?" in run("top", "--url", "127.0.0.1:1", "--once").err
    assert "not an address" in run("top", "--url", "ftp://x").err


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A keyboard: what is written there is typed."""
    keyboard, end = os.openpty()
    with os.fdopen(end) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        yield keyboard
    os.close(keyboard)


def test_a_key_is_heard_at_once_and_the_terminal_is_as_before_afterwards(terminal: int) -> None:
    import sys
    import termios

    before = termios.tcgetattr(sys.stdin)
    with top._keys() as pressed:
        assert termios.tcgetattr(sys.stdin) != before
        assert pressed(0.01) == ""
        os.write(terminal, b"q")
        assert pressed(60) == "q"
    assert termios.tcgetattr(sys.stdin) == before


@pytest.mark.parametrize("end", ["q", KeyboardInterrupt])
def test_q_and_ctrl_c_end_it_well(run: Any, monkeypatch: pytest.MonkeyPatch, end: Any) -> None:
    answers = iter(["", " ", end])

    def pressed(seconds: float) -> str:
        answer = next(answers)
        if answer is KeyboardInterrupt:
            raise KeyboardInterrupt
        return str(answer)

    @contextlib.contextmanager
    def keys() -> Iterator[Any]:
        yield pressed

    monkeypatch.setattr(top, "_keys", keys)
    with serving(ActingLink()) as url:
        done = run("top", "--url", url)
    assert (done.code, done.out.count("minisgl top")) == (0, 3)

"""minisgl explain: by the real cache, with a tokenizer of one token a byte, and by a server's answers."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from support.tiny_model import make_tokenizer

from minisgl.cli.api_client import ApiClient
from minisgl.cli.explain_offline import explain_offline as look
from minisgl.cli.explain_prompts import AskedPrompt, read_asked
from minisgl.cli.explain_report import Found, show
from minisgl.llm.explained import Around

FIRST = "You are helpful. It is 12:07. Answer briefly."
LATER = "You are helpful. It is 12:31. Answer briefly."
AT = FIRST.index("07")
CHAT = [{"role": "user", "content": "Hi"}]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder of a model without its weights."""
    folder = tmp_path_factory.mktemp("tokenizer")
    make_tokenizer().save_pretrained(folder)
    (folder / "config.json").write_text("{}")
    return str(folder)


@pytest.fixture
def run_explain(run: Any, model: str) -> Any:
    return lambda *arguments: run("explain", "--model", model, *arguments)


def shown(*found: Found) -> str:
    console = Console(file=io.StringIO(), width=200, highlight=False, markup=False, emoji=False)
    show(found, console)
    return console.file.getvalue()  # type: ignore[attr-defined]


def asked(*texts: str) -> list[AskedPrompt]:
    return [AskedPrompt(f"prompt {number}", text) for number, text in enumerate(texts, 1)]


def causes(found: Found) -> dict[str, int]:
    return {cause: tokens for cause, tokens in found.answer["causes"].items() if tokens}


def test_the_time_in_a_system_prompt_is_seen_at_once(run_explain: Any) -> None:
    done = run_explain(FIRST, LATER)
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[:3] == [
        f"prompt 1: {len(FIRST)} tokens: {len(FIRST)} never seen",
        f"prompt 2: {len(LATER)} tokens: {AT} cached, {len(LATER) - AT} never seen",
        f"  It leaves prompt 1 after {AT} tokens:",
    ]
    assert lines[3:6] == [
        "    prompt 2  ...t is 12:31. Answ",
        "    prompt 1  ...t is 12:07. Answ",
        "                         ^",
    ]
    assert lines[6] == "  Both end with the same 17 tokens: put what differs behind these to have them cached."
    assert lines[7] == f"2 prompts: {2 * len(FIRST)} tokens, {AT} cached ({AT / 2 / len(FIRST):.0%})"


def test_each_prompt_is_explained_against_all_before_it_and_names_the_one_that_it_left(model: str) -> None:
    found = look(asked("abcdef", "xyz", "abcxyz", "abcdef", "xyz!"), model, 1, None)
    assert [causes(each) for each in found] == [
        {"never_seen": 6},
        {"never_seen": 3},
        {"hit": 3, "never_seen": 3},
        {"hit": 5, "last_token": 1},
        {"hit": 3, "never_seen": 1},
    ]
    assert [each.closest for each in found] == [None, None, "prompt 1", None, "prompt 2"]
    assert found[2].answer["around"] == {"before": "abc", "after": "xyz", "branch": "def"}
    assert found[4].answer["around"] == {"before": "xyz", "after": "!", "branch": ""}


def test_in_pages_what_fills_none_is_known_but_not_cached(model: str) -> None:
    found = look(asked("abcdefgh", "abcdefxx"), model, 4, None)
    assert causes(found[1]) == {"hit": 4, "below_page": 2, "never_seen": 2}


def test_a_small_pool_forgets_and_says_so(model: str) -> None:
    found = look(asked("abcdefgh", "ijklmnop", "qrstuvwx", "yz012345", "abcdefgh"), model, 1, 16)
    assert causes(found[4]) == {"evicted": 7, "last_token": 1}
    assert "7 evicted (8 more were evicted since)" in shown(found[4])
    with pytest.raises(ValueError, match=r"--pool-tokens 7: the longest prompt has 8 tokens"):
        look(asked("abcdefgh", "ijk"), model, 1, 7)


def test_json_has_the_text_of_each_cause_and_what_the_other_prompt_has(run_explain: Any) -> None:
    done = run_explain(FIRST, LATER, "--json")
    first, later = json.loads(done.out)
    assert (first["prompt"], first["closest"], first["around"]) == (
        "prompt 1",
        None,
        {"before": "", "after": "You are "},
    )
    assert [(segment["cause"], segment["text"]) for segment in later["segments"]] == [
        ("hit", LATER[:AT]),
        ("never_seen", LATER[AT:]),
    ]
    assert later["around"]["branch"] == "07. Answ"
    assert (later["closest"], later["common_end_tokens"]) == ("prompt 1", 17)


def test_a_text_cannot_write_to_the_terminal_what_it_wants() -> None:
    around = {"before": "a\nb\x1b[2J", "after": "\u009b1m", "branch": "c\td"}
    answer = {"prompt_tokens": 9, "cached_tokens": 4, "causes": {"hit": 4, "never_seen": 5}, "left_at": 4}
    text = shown(Found("prompt 2", {**answer, "around": around, "evicted_s": None, "evicted_tokens": None}, "prompt 1"))
    assert "a\\nb\\u001b[2J" in text
    assert not {"\x1b", "\u009b", "\t"} & set(text)


def test_prompts_come_from_the_command_line_stdin_files_and_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one.txt").write_text("one\ntext\n")
    lines = tmp_path / "lines.txt"
    lines.write_text("two\n\nthree\n")
    monkeypatch.setattr("sys.stdin", io.StringIO("stdin\n"))
    found = read_asked(["given", "-", f"@{tmp_path / 'one.txt'}"], lines, chat=False, system=None)
    assert [prompt.text for prompt in found] == ["given", "stdin", "one\ntext\n", "two", "three"]
    assert [prompt.where for prompt in found[2:]] == ["prompt 3", f"{lines}, line 1", f"{lines}, line 3"]


def test_lines_of_json_are_texts_or_conversations(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    file.write_text('{"prompt": "Hi", "max_tokens": 3}\n' + json.dumps({"messages": CHAT}) + "\n")
    text, chat = read_asked([], file, chat=False, system=None)
    assert (text.text, text.messages) == ("Hi", ())
    assert (chat.text, list(chat.messages)) == (None, CHAT)
    assert read_asked([], file, chat=True, system="Be brief.")[0].messages == (
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
    )


def test_a_pool_of_more_tokens_than_all_prompts_have_is_no_larger_than_they_need(model: str) -> None:
    found = look(asked("abcdefgh", "abcdxyz"), model, 1, 10**12)
    assert causes(found[1]) == {"hit": 4, "never_seen": 3}


def test_a_pool_of_less_than_a_page_is_too_small_in_pages(model: str) -> None:
    with pytest.raises(ValueError, match=r"--pool-tokens 3: the longest prompt has 3 tokens, in pages of 5"):
        look(asked("abc", "abd"), model, 5, 3)


def test_nor_can_the_name_of_a_file(model: str, tmp_path: Path) -> None:
    file = tmp_path / "\x1b[2J.txt"
    file.write_text("abcd\nabxy\n")
    text = shown(*look(read_asked([], file, chat=False, system=None), model, 1, None))
    assert "It leaves" in text
    assert "\x1b" not in text


@pytest.mark.parametrize(
    "line", ["[" * 100_000, "{", "[]", "{}", '{"prompt": 3}', '{"messages": []}', '{"prompt": "", "messages": [1]}']
)
def test_a_line_that_is_no_prompt_is_named(line: str, tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    file.write_text(f'{{"prompt": "Hi"}}\n{line}\n')
    with pytest.raises(ValueError, match=r"log\.jsonl, line 2"):
        read_asked([], file, chat=False, system=None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to explain"),
        (["a"], "one prompt has nothing before it"),
        (["a", ""], "prompt 2: empty prompt"),
        (["a", "@no/such/file"], "no/such/file"),
        (["a", "b", "--system", "Be brief."], "--system is for conversations: prompt 1 is a text"),
        (["a", "b", "--api-key", "k"], "--api-key is for --url"),
        (["a", "--url", "http://127.0.0.1:1"], "it takes no --model"),
    ],
)
def test_what_cannot_be_explained_is_said(run_explain: Any, arguments: list[str], message: str) -> None:
    done = run_explain(*arguments)
    assert done.code == 2
    assert message in done.err


def test_a_server_is_asked_for_each_prompt_and_never_tells_the_other_one(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = []

    def answer(client: ApiClient, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        questions.append((method, path, body))
        around = {"before": "It is 12:", "after": "31. Answer"}
        evicted = {"evicted_s": 12.3, "evicted_tokens": 4096}
        causes = {"hit": 4, "evicted": 3, "never_seen": 2}
        fields = {"prompt_tokens": 9, "cached_tokens": 4, "causes": causes, "left_at": 7, "around": around}
        return 200, json.dumps({**fields, **evicted, "segments": []}).encode()

    monkeypatch.setattr(ApiClient, "answer", answer)
    done = run("explain", "--chat", "Hi", "--url", "http://127.0.0.1:1")
    assert questions == [("POST", "/cache/explain", {"messages": CHAT})]
    assert done.out.splitlines() == [
        "prompt 1: 9 tokens: 4 cached, 3 evicted (12 s ago, 4,096 more were evicted since), 2 never seen",
        "  It leaves what came closest after 7 tokens:",
        "    prompt 1  It is 12:31. Answer",
        "                       ^",
    ]


def test_a_server_that_is_not_there_is_an_error(run: Any) -> None:
    done = run("explain", "a", "--url", "http://127.0.0.1:1")
    assert done.code != 0
    assert "127.0.0.1:1" in done.err


def answer_of(*segments: tuple[str, str], left_at: int) -> bytes:
    """A server's, of one token a character."""
    text = "".join(text for _, text in segments)
    causes = {cause: len(text) for cause, text in segments}
    around = {"before": text[max(0, left_at - 8) : left_at], "after": text[left_at:][:8]} if text[left_at:] else None
    fields = {"prompt_tokens": len(text), "cached_tokens": causes.get("hit", 0), "causes": causes, "left_at": left_at}
    listed = [{"cause": cause, "tokens": len(text), "text": text} for cause, text in segments]
    evicted = {"evicted_s": None, "evicted_tokens": None}
    return json.dumps({**fields, **evicted, "around": around, "segments": listed}).encode()


def test_of_prompts_that_a_server_knows_the_one_that_another_leaves_is_shown(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {
        FIRST: answer_of(("hit", FIRST[:-1]), ("last_token", FIRST[-1:]), left_at=len(FIRST)),
        LATER: answer_of(("hit", LATER[:AT]), ("never_seen", LATER[AT:]), left_at=AT),
        "You are": answer_of(("hit", "You "), ("never_seen", "are"), left_at=4),
        "Me": answer_of(("never_seen", "Me"), left_at=0),
    }
    monkeypatch.setattr(ApiClient, "answer", lambda client, method, path, body: (200, answers[body["prompt"]]))
    done = run("explain", *answers, "--url", "http://127.0.0.1:1", "--json")
    assert [each["closest"] for each in json.loads(done.out)] == [None, "prompt 1", "prompt 2", None]
    lines = run("explain", LATER, FIRST, "--url", "http://127.0.0.1:1").out.splitlines()
    assert lines[1:5] == [
        f"  It leaves prompt 2 after {AT} tokens:",
        "    prompt 1  ...t is 12:31. Answ",
        "    prompt 2  ...t is 12:07. Answ",
        "                         ^",
    ]


def test_a_bar_counts_the_prompts_that_a_server_is_asked_for(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = []

    def tracked(items: list[AskedPrompt], what: str, unit: str) -> list[AskedPrompt]:
        counted.append((len(items), what, unit))
        return items

    monkeypatch.setattr("minisgl.cli.explain_server.tracked", tracked)
    monkeypatch.setattr(ApiClient, "answer", lambda *question: (200, answer_of(("never_seen", "a"), left_at=0)))
    assert run("explain", "a", "b", "--url", "http://127.0.0.1:1").code == 0
    assert counted == [(2, "asking", "prompts")]


@pytest.mark.parametrize("arguments", [["a", "@no/such"], ["--file", "no/such"]])
def test_a_file_that_is_not_there_is_named_before_the_reason(run_explain: Any, arguments: list[str]) -> None:
    assert run_explain(*arguments).err == "error: no/such: No such file or directory\n"


SAME = "The same text in other tokens"


@pytest.mark.parametrize(
    ("after", "branch", "is_same"),
    [("Hello there", "Hello", True), ("Hel", "Hello", True), ("Hello", "Help", False), ("Hello", "", False)],
)
def test_the_same_text_in_other_tokens_is_said_to_be_that(after: str, branch: str, is_same: bool) -> None:
    around = {"before": "Say ", "after": after, "branch": branch}
    answer = {"prompt_tokens": 9, "cached_tokens": 4, "causes": {"hit": 4, "never_seen": 5}, "left_at": 4}
    text = shown(Found("prompt 2", {**answer, "around": around, "evicted_s": None, "evicted_tokens": None}, "prompt 1"))
    assert (SAME in text) is is_same
    assert Around("Say ", after, branch).same_text is is_same

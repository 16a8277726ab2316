import io
import json
import sys
from pathlib import Path

import pytest
from support.needs import FULL_DEVICE
from support.terminal import impatient_terminal

from minisgl.cli import main
from minisgl.cli.report import Totals
from minisgl.core import SamplingParams


def test_one_prompt_is_answered_on_stdout_and_summed_up_on_stderr(run, fake_llm):
    done = run("generate", "hello")
    assert done.code == 0
    assert done.out == "HELLO\n"
    assert done.err.startswith("1 prompt, 5 prompt tokens (40% cached), 5 generated, ")
    assert fake_llm.last.model == "smollm2"
    assert fake_llm.last.is_shut_down


@pytest.mark.parametrize("way", [(), ("--jsonl",), ("--n", "2"), ("another",)], ids=["stream", "jsonl", "n", "many"])
def test_a_text_that_finds_no_more_room_says_so(run, fake_llm, way: tuple[str, ...]):
    done = run("generate", "cut", "--max-tokens", "40", *way)
    assert done.code == 0
    assert "cut after 3 of 40 tokens: the context or the KV pool holds no more" in done.err
    assert "cut after" not in run("generate", "cut", "--max-tokens", "3", *way).err


@pytest.mark.parametrize(("prompts", "shown"), [(("hello", "another"), True), (("hello",), False)])
def test_many_prompts_have_a_bar_and_one_streams_without(run, fake_llm, prompts: tuple[str, ...], shown: bool):
    with impatient_terminal() as screen:
        run("generate", *prompts)
    assert ("generating" in screen.getvalue()) == shown


def test_flags_become_fields_and_only_those_given(run, fake_llm):
    run("generate", "--model", "m", "--num-pages", "9", "--cache-type", "naive", "--dtype", "float32", "hello")
    assert fake_llm.last.model == "m"
    assert fake_llm.last.config == {"num_page_override": 9, "cache_type": "naive", "dtype": "float32"}


def test_sampling_flags_of_every_shape_become_sampling_params(run, fake_llm):
    run(
        *("generate", "--temperature", "0.5", "--ignore-eos", "--stop", "a", "--stop", "b", "--stop-token-ids", "7"),
        *("--logit-bias", "3=-1.5", "--logit-bias", "4=2", "--max-tokens", "9", "--seed", "0", "hello"),
    )
    (_, params), *_ = fake_llm.last.calls
    assert params == SamplingParams(
        temperature=0.5,
        ignore_eos=True,
        stop=("a", "b"),
        stop_token_ids=(7,),
        logit_bias={3: -1.5, 4: 2.0},
        max_tokens=9,
        seed=0,
    )


def test_many_prompts_come_in_order_whatever_finishes_first(run, fake_llm, tmp_path: Path):
    file = tmp_path / "prompts.txt"
    file.write_text("long text\n\nab\n")
    done = run("generate", "--file", str(file), "--jsonl", "middle")
    records = [json.loads(line) for line in done.out.splitlines()]
    assert [(record["index"], record["prompt"], record["text"]) for record in records] == [
        (0, "middle", "MIDDLE"),
        (1, "long text", "LONG TEXT"),
        (2, "ab", "AB"),
    ]
    assert "3 prompts" in done.err


def test_only_a_newline_ends_a_prompt_of_a_file(run, fake_llm, tmp_path: Path):
    prompts = ["a\u2028b", "c\x0cd", "e\x85f", "g\rh"]
    file = tmp_path / "prompts.txt"
    file.write_bytes("\n".join(prompts).encode() + b"\r\n \r\n\n")
    done = run("generate", "--file", str(file), "--jsonl")
    assert [json.loads(line)["prompt"] for line in done.out.split("\n")[:-1]] == prompts


def test_of_many_prompts_the_refused_one_is_named(run, fake_llm, tmp_path: Path):
    file = tmp_path / "prompts.txt"
    file.write_text("fine\n\nrefuse me\n")
    for arguments, name in ((("a", "refuse me"), "prompt 2: "), (("--file", str(file)), f"{file}, line 3: ")):
        assert run("generate", *arguments).err == f"error: {name}token id 7 is outside the vocabulary\n"
    assert run("generate", "--chat", "refuse me").err == "error: token id 7 is outside the vocabulary\n"


@pytest.mark.parametrize("arguments", [("--page-size", "0", "hi"), ("refuse me",)])
def test_the_output_file_keeps_what_it_held_until_there_is_something_to_write(
    run, fake_llm, tmp_path: Path, arguments: tuple[str, ...]
):
    path = tmp_path / "out.jsonl"
    path.write_text("precious")
    assert run("generate", "--output", str(path), *arguments).code == 2
    assert path.read_text() == "precious"


def test_json_lines_are_strict_json(run, fake_llm):
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    done = run("generate", "--jsonl", "hello")
    assert json.loads(done.out, parse_constant=refuse)["logprobs"] == [None]


def test_the_output_file_takes_the_lines_and_stdout_stays_empty(run, fake_llm, tmp_path: Path):
    path = tmp_path / "out.jsonl"
    done = run("generate", "--output", str(path), "hello", "世界")
    assert done.out == ""
    assert [json.loads(line)["prompt"] for line in path.read_text(encoding="utf-8").splitlines()] == ["hello", "世界"]


@FULL_DEVICE
def test_output_that_finds_no_room_says_where(run, fake_llm, tmp_path: Path):
    path = tmp_path / "out.jsonl"
    path.symlink_to("/dev/full")
    done = run("generate", "--output", str(path), "hello")
    assert done.code == 2
    assert done.err.splitlines()[-1] == f"error: {path}: No space left on device"


def test_several_prompts_as_text_are_told_apart(run, fake_llm):
    assert run("generate", "ab", "cd").out == "[1] ab\nAB\n\n[2] cd\nCD\n\n"


def test_every_choice_of_a_prompt_is_shown_and_counted(run, fake_llm):
    done = run("generate", "--n", "2", "ab")
    assert done.out == "[1] ab\nAB\nAB\n\n"
    assert done.err.startswith("1 prompt, 2 prompt tokens (50% cached), 4 generated, ")


def test_a_choice_that_fails_fails_its_prompt():
    totals, good = Totals(), {"prompt_tokens": 2, "cached_tokens": 1, "token_ids": [5]}
    bad = {"prompt_tokens": 2, "cached_tokens": 0, "token_ids": [], "error": "out of luck"}
    totals.add({**good, "choices": [good, bad]})
    assert totals.line(1.0) == "1 prompt, 2 prompt tokens (50% cached), 1 generated, 1.0 tok/s, 1.00 s, 1 failed"


def test_a_prompt_that_fails_is_reported_and_the_others_run_on(run, fake_llm):
    done = run("generate", "ab", "bad")
    assert done.code == 1
    assert "AB" in done.out
    assert "error: prompt 2: out of luck" in done.err
    assert "1 failed" in done.err


def test_chat_sends_the_prompt_through_the_template(run, fake_llm):
    assert run("generate", "--chat", "hi").out == "<USER>HI\n"
    (prompts, _), *_ = fake_llm.last.calls
    assert [prompt.tolist() for prompt in prompts] == [[ord(char) for char in "<user>hi"]]


def test_a_dash_reads_the_prompt_from_stdin(run, fake_llm):
    assert run("generate", "-", stdin="two\nlines").out == "TWO\nLINES\n"
    assert run("generate", "-", stdin="as echo has it\n").out == "AS ECHO HAS IT\n"


def test_ctrl_c_aborts_and_keeps_what_was_finished(run, fake_llm, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fake_llm, "press_ctrl_c_at", 6)
    done = run("generate", "--jsonl", "a long one", "b")
    assert done.code == 130
    assert fake_llm.last.aborted
    assert fake_llm.last.is_shut_down
    assert [json.loads(line)["text"] for line in done.out.splitlines()] == ["B"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "nothing to generate"),
        (("--logit-bias", "x=1", "hi"), "--logit-bias 'x=1' is not ID=BIAS"),
        (("--page-size", "0", "hi"), "--page-size=0"),
        (("--file", "/no/such/file"), "/no/such/file"),
        (("--output", "/no/such/dir/x", "hi"), "/no/such/dir/x"),
        (("--output", "/", "hi"), "--output /"),
    ],
)
def test_a_mistake_of_the_user_is_one_line_and_exit_2(run, fake_llm, arguments: tuple[str, ...], words: str):
    done = run("generate", *arguments)
    assert done.code == 2
    assert done.err.startswith("error: ")
    assert words in done.err
    assert done.err.count("\n") == 1


def test_help_explains_every_flag(run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "120")
    done = run("generate", "--help")
    assert done.code == 0
    for words in (
        "--num-pages",
        "--max-extend-tokens",
        "--temperature",
        "default: radix",
        "may be repeated",
        "ID=BIAS",
    ):
        assert words in done.out


@pytest.mark.slow
def test_the_default_model_knows_the_capital_of_france(run):
    done = run("generate", "--max-tokens", "3", "The capital of France is")
    assert done.code == 0
    assert done.out.startswith(" Paris.")


@pytest.mark.slow
def test_all_that_the_default_model_s_outputs_hold_is_written_down(run):
    done = run(
        "generate", "--max-tokens", "3", "--jsonl", "--logprobs", "1", "--prompt-logprobs", "1", "Paris is", "Paris is"
    )
    assert done.code == 0
    for line in done.out.splitlines():
        record = json.loads(line)
        assert record["explanation"]["not_looked_up"] == record["prompt_tokens"]
        assert len(record["logprobs"]) == 3


@pytest.mark.parametrize(("flags", "shown"), [((), rb"\xc9 \U0001f980"), (("--jsonl",), rb'"\u00c9 \ud83e\udd80"')])
def test_a_narrow_terminal_gets_escapes_instead_of_nothing(
    fake_llm, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], shown: bytes
):
    narrow = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", narrow)
    with pytest.raises(SystemExit):
        main(["generate", *flags, "é 🦀"])
    narrow.flush()
    assert shown in narrow.buffer.getvalue()

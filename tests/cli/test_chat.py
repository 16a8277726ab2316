import pytest


def test_every_turn_sends_the_whole_history(run, fake_llm):
    done = run("chat", "--max-tokens", "5", stdin="hi\n\nyou\n")
    assert done.code == 0
    assert done.out == "HI\nYOU\n"
    first, second = fake_llm.last.calls
    assert first[0] == [{"role": "user", "content": "hi"}]
    assert second[0] == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "HI"},
        {"role": "user", "content": "you"},
    ]
    assert second[1].max_tokens == 5
    assert fake_llm.last.is_shut_down


def test_reset_forgets_all_but_the_system_message(run, fake_llm):
    run("chat", "--system", "be brief", stdin="hi\n/reset\nyou\n")
    system = {"role": "system", "content": "be brief"}
    assert [messages for messages, _ in fake_llm.last.calls] == [
        [system, {"role": "user", "content": "hi"}],
        [system, {"role": "user", "content": "you"}],
    ]


def test_exit_ends_before_the_input_does(run, fake_llm):
    assert run("chat", stdin="hi\n/exit\nyou\n").out == "HI\n"


def test_stats_shows_the_tree_and_the_hit_rate(run, fake_llm):
    done = run("chat", stdin="/stats\n")
    assert "[12 tokens]" in done.out
    assert "hit_rate: 75.0%\nhit_rate of other pools, estimated: 0.5x 62.5%, 2x 87.5%\n" in done.out


def test_help_lists_the_commands_and_an_unknown_one_points_there(run, fake_llm):
    assert "/reset" in run("chat", stdin="/help\n").out
    assert "/what is no command; /help" in run("chat", stdin="/what now\n").out


def test_ctrl_c_stops_the_reply_but_not_the_chat(run, fake_llm, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fake_llm, "press_ctrl_c_at", 2)
    done = run("chat", stdin="a long one\nyo\n")
    assert done.code == 0
    assert "A L [stopped]\n" in done.out
    assert fake_llm.last.aborted
    _, (history, _) = fake_llm.last.calls
    assert history[1] == {"role": "assistant", "content": "A L"}


def test_an_impatient_second_ctrl_c_stops_at_once_and_not_the_chat_either(run, fake_llm, monkeypatch):
    monkeypatch.setattr(fake_llm, "press_ctrl_c_at", 0)
    monkeypatch.setattr(fake_llm, "num_presses", 2)
    done = run("chat", stdin="a long one\nyo\n")
    assert done.code == 0
    assert done.out.startswith(" [stopped]\n")
    assert fake_llm.last.aborted


def test_a_failed_reply_is_shown_and_forgotten(run, fake_llm):
    done = run("chat", stdin="bad\nhi\n")
    assert done.out == "BAD\nerror: out of luck\nHI\n"
    _, (history, _) = fake_llm.last.calls
    assert history == [{"role": "user", "content": "hi"}]


def test_a_refused_message_is_dropped_and_the_chat_goes_on(run, fake_llm):
    done = run("chat", stdin="refuse first\nhi\nrefuse this\nyou\n")
    assert done.code == 0
    first, second = "error: token id 7 is outside the vocabulary", "; /reset starts anew"
    assert done.out == f"{first}\nHI\n{first}{second}\nYOU\n"
    *_, (history, _) = fake_llm.last.calls
    assert [message["content"] for message in history] == ["hi", "HI", "you"]


def test_what_was_resolved_is_said_on_a_terminal_only(run, fake_llm, monkeypatch: pytest.MonkeyPatch):
    assert run("chat").err == ""
    monkeypatch.setattr("minisgl.cli.session._is_terminal", lambda: True)
    done = run("chat")
    assert done.out == ""
    resolved = "smollm2: float32 on cpu, context 8,192 tokens, KV pool 1,024 tokens\n"
    assert done.err == f"{resolved}greedy, at temperature 0\n"
    assert run("chat", "--temperature", "0.7").err == resolved


@pytest.mark.parametrize("command", ["chat", "generate"])
def test_a_greedy_command_says_on_a_terminal_what_the_model_s_makers_advise(
    run, fake_llm, monkeypatch: pytest.MonkeyPatch, command: str
):
    monkeypatch.setattr("minisgl.cli.session._is_terminal", lambda: True)
    monkeypatch.setattr(fake_llm, "sampling_defaults", {"temperature": 0.2, "top_p": 0.9})
    done = run(command, *(["hi"] if command == "generate" else []), stdin="hi\n")
    assert "greedy, at temperature 0; its makers advise --temperature 0.2 --top-p 0.9\n" in done.err
    assert fake_llm.last.calls[0][1].temperature == 0


@pytest.mark.parametrize(("flags", "temperature"), [((), 0.0), (("--temperature", "0.7"), 0.7)])
def test_a_chat_samples_as_its_flags_say_whatever_the_model_s_makers_advise(run, fake_llm, flags, temperature):
    """`LLM.chat` takes their advice for what is not given."""
    run("chat", *flags, stdin="hi\n")
    params = fake_llm.last.calls[0][1].advised({"temperature": 0.2, "top_p": 0.9})
    assert (params.temperature, params.top_p) == (temperature, 1.0)


def test_escape_codes_of_the_model_do_not_reach_the_terminal(run, fake_llm):
    assert run("chat", stdin="a\x1b[31mb 👩‍💻\n").out == "A[31MB 👩‍💻\n"


def test_several_choices_make_no_chat(run, fake_llm):
    done = run("chat", "--n", "2")
    assert done.code == 2
    assert done.err == "error: --n=2: a chat has one reply\n"


def test_a_chat_without_new_tokens_is_none(run, fake_llm):
    done = run("chat", "--max-tokens", "0")
    assert done.code == 2
    assert done.err == "error: --max-tokens=0: a reply needs at least one token\n"

import os
import signal
import threading
from dataclasses import asdict, replace

import pytest
from support.openai_stub import OpenAIStub, openai_stub

from minisgl.cli.chat_stats import server_lines
from minisgl.llm.stats import Stats
from minisgl.message import EngineStats


def test_every_turn_sends_the_whole_history_to_the_server(run):
    with openai_stub() as server:
        done = run("chat", "--url", server.url, "--max-tokens", "5", "--system", "be brief", stdin="hi\n\nyou\n")
    assert done.code == 0
    assert done.out == "HI\nYOU\n"
    first, second = server.requests
    assert first["messages"] == [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
    assert second["messages"] == [
        *first["messages"],
        {"role": "assistant", "content": "HI"},
        {"role": "user", "content": "you"},
    ]
    assert (first["model"], first["max_tokens"], first["stream"]) == ("ok", 5, True)
    assert first["temperature"] == 0  # the chat's own default, whatever the server's is


def test_a_server_that_is_not_there_is_named(run):
    for command in (("chat", "--url", "127.0.0.1:1"), ("bench", "serve", "--url", "127.0.0.1:1")):
        done = run(*command, stdin="hi\n")
        assert done.code == 2
        assert "127.0.0.1:1: " in done.err
        assert "does a server run there?" in done.err


def test_the_address_may_end_in_v1_and_the_key_is_sent(run):
    with openai_stub() as server:
        done = run("chat", "--url", f"{server.url}/v1/", "--api-key", "secret", stdin="hi\n")
    assert done.out == "HI\n"
    assert server.headers[0]["authorization"] == "Bearer secret"


def test_stats_of_a_server_are_lines_like_those_of_a_model_that_is_loaded_here():
    stats = EngineStats(queried_tokens=8, hit_tokens=3, host_s=0.3625100610203327, num_pages=7, causes={"hit": 3})
    stats = replace(stats, capacity_hits=(1, 3, 4, 5, 5), capacity_queried=8)
    lines = server_lines({"version": "1.2.3", "engine": {"dtype": "float32"}, "internal_states": [asdict(stats)]})
    local = Stats().with_engine(stats)
    assert [line.partition(":")[0] for line in lines[:-1]] == [name for name in local if name != "capacity_hit_rates"]
    assert {"prompt_tokens: 8", "cached_tokens: 3", "hit_rate: 37.5%", "host_s: 0.36", "num_pages: 7"} < set(lines)
    assert lines[-1] == "hit_rate of other pools, estimated: 0.5x 12.5%, 2x 50.0%, 4x 62.5%, 8x 62.5%"


def test_of_a_server_before_its_first_prompt_no_hit_rate_of_other_pools_is_made_up():
    lines = server_lines({"internal_states": [asdict(EngineStats())]})
    assert "hit_rate: 0.0%" in lines
    assert not any("other pools" in line for line in lines)


def test_of_another_server_all_is_shown_that_it_says_of_itself(run):
    with openai_stub() as server:
        done = run("chat", "--url", server.url, stdin="/stats\n")
    assert done.out == "version: 1.2.3\ninternal_states[0].free: 3\ninternal_states[0].names: ['a', 'b']\n"


@pytest.mark.parametrize("info", [{"internal_states": [{**asdict(EngineStats()), "host_s": "long"}]}, {"a": 1}, [7], 3])
def test_what_only_looks_like_a_server_of_minisgl_is_shown_as_it_is(info):
    assert not any(line.startswith("hit_rate") for line in server_lines(info))


@pytest.mark.parametrize(
    ("model", "out"),
    [
        ("refused", "error: too warm\n"),
        ("plain-500", "error: HTTP 500: <h1>oops</h1>\n"),
        ("cut", "A L\nerror: the server: "),
        ("no-done", "A LONG ONE\nerror: the server: the reply broke off\n"),
        ("error-event", "A L\nerror: boom\n"),
    ],
)
def test_a_reply_that_fails_is_shown_and_forgotten_and_the_chat_goes_on(run, model, out):
    with openai_stub(model) as server:
        done = run("chat", "--url", server.url, stdin="a long one\nagain\n")
    assert done.code == 0
    assert done.out.startswith(out)
    assert server.requests[1]["messages"] == [{"role": "user", "content": "again"}]


def test_ctrl_c_stops_the_reply_and_hangs_up_but_the_chat_goes_on(run):
    with openai_stub("slow") as server:
        hand = threading.Thread(target=press_ctrl_c_after_two_pieces, args=(server,))
        hand.start()
        done = run("chat", "--url", server.url, "--max-tokens", "8", stdin="a long one\nx\n")
        hand.join()
        assert server.gone.wait(30)
    assert done.code == 0
    assert " [stopped]\n" in done.out
    assert done.out.endswith("X\n")
    stopped = done.out.split(" [stopped]")[0]
    assert server.requests[1]["messages"][1] == {"role": "assistant", "content": stopped}


def press_ctrl_c_after_two_pieces(server: OpenAIStub) -> None:
    assert server.two_are_sent.wait(60)
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--url", "http://127.0.0.1:1"), "error: "),
        (("--url", "127.0.0.1:x"), "error: "),
        (("--url", "http://h", "--page-size", "4"), "it takes no page_size"),
        (("--api-key", "k"), "--api-key is for --url"),
    ],
)
def test_wrong_options_are_one_line_and_exit_2(run, options, words):
    done = run("chat", *options)
    assert done.code == 2
    assert words in done.err
    assert len(done.err.splitlines()) == 1

import json
import sys

import pytest
from support.openai_stub import openai_stub

from minisgl.cli.bench.load import Result
from minisgl.cli.bench.serve_plot import arrivals_of
from minisgl.env import ENV

SMALL = ("--num-requests", "6", "--input-len", "5", "--output-len", "7", "--prefix-len", "8")


@pytest.mark.parametrize("backend", ["completions", "chat"])
@pytest.mark.parametrize("dataset", ["random", "shared-prefix", "multi-turn"])
def test_every_dataset_runs_over_both_endpoints(run, tmp_path, backend, dataset):
    file = tmp_path / "out.json"
    with openai_stub() as server:
        options = ("--url", server.url, "--backend", backend, "--dataset", dataset, "--json", str(file))
        done = run("bench", "serve", *SMALL, *options)
    assert done.code == 0, done.err
    assert "6 of 6 requests" in done.out
    summary = json.loads(file.read_text())
    assert summary["output_tokens"] == 6 * 7
    assert summary["cached_share"] == pytest.approx(0.5, abs=0.05)
    assert len(server.requests) == 6
    for request in server.requests:
        assert request["path"] == {"completions": "/v1/completions", "chat": "/v1/chat/completions"}[backend]
        assert request["model"] == "ok"
        assert request["ignore_eos"] is True


def test_a_run_is_drawn_with_its_load_in_the_title(run, tmp_path):
    picture = tmp_path / "out.svg"
    with openai_stub() as server:
        done = run("bench", "serve", "--url", server.url, *SMALL, "--concurrency", "3", "--plot", str(picture))
    assert done.code == 0, done.err
    shown = picture.read_text()
    for text in (f"ok: random over completions, {server.url}, 3 at once", "first token", "pieces of text a second"):
        assert text in shown


def test_where_nothing_went_well_nothing_is_drawn_and_it_says_so(run, tmp_path):
    with openai_stub("refused") as server:
        done = run("bench", "serve", "--url", server.url, *SMALL, "--plot", str(tmp_path / "out.svg"))
    assert "no request went well, so there is nothing to draw" in done.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("flag", "file"), [("--plot", "out.bmp"), ("--json", "nowhere/out.json")])
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_sent(run, tmp_path, flag, file):
    with openai_stub() as server:
        assert run("bench", "serve", "--url", server.url, flag, str(tmp_path / file)).code == 2
    assert server.requests == []


def test_pieces_of_text_came_when_the_clock_said_so():
    result = Result(None, total_s=3.0, sent_s=10.0, first_token_s=1.0, gaps_s=(0.5, 0.25))
    assert arrivals_of(result) == [11.0, 11.5, 11.75]


def test_a_turn_is_sent_with_the_answers_before_it(run):
    with openai_stub() as server:
        options = ("--backend", "chat", "--dataset", "multi-turn", "--num-turns", "3", "--concurrency", "1")
        run("bench", "serve", "--url", server.url, *SMALL, *options)
    first, second, third, *_ = server.requests
    assert [message["role"] for message in third["messages"]] == ["system", *["user", "assistant"] * 2, "user"]
    assert third["messages"][: len(second["messages"])] == second["messages"]
    question, answer = second["messages"][1:3]
    assert question == first["messages"][1]
    assert answer["content"] == question["content"].upper()[:7]


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("refused", "failed 6 times: HTTP 400: too warm"),
        ("plain-500", "failed 6 times: HTTP 500: <h1>oops</h1>"),
        ("cut", "failed 6 times: the connection was closed in the middle of an answer"),
        ("no-done", "failed 6 times: the stream ended without [DONE]"),
        ("no-finish", "failed 6 times: the stream named no finish_reason"),
        ("error-event", "failed 6 times: error in the stream: boom"),
        ("empty", "failed 6 times: the answer holds no text"),
    ],
)
def test_what_went_wrong_is_counted_by_its_reason_and_exits_1(run, model, words):
    with openai_stub(model) as server:
        done = run("bench", "serve", "--url", server.url, *SMALL)
    assert done.code == 1
    assert words in done.out


def test_pieces_are_counted_where_a_server_tells_no_usage(run):
    with openai_stub("no-usage") as server:
        assert "42 generated" in run("bench", "serve", "--url", server.url, *SMALL).out


def test_a_request_that_takes_too_long_has_failed(run):
    with openai_stub("slow") as server:
        done = run("bench", "serve", "--url", server.url, *SMALL, "--timeout", "0.2")
    assert "failed 6 times: no end within 0.2 s" in done.out
    assert server.gone.wait(30)


def test_at_a_rate_requests_do_not_wait_for_one_another(run):
    with openai_stub("slow") as server:
        done = run("bench", "serve", "--url", server.url, *SMALL, "--rate", "1000", "--timeout", "1")
    assert "failed 6 times" in done.out
    assert server.most_open == len(server.requests) == 6


def test_the_key_is_sent(run):
    with openai_stub() as server:
        run("bench", "serve", "--url", server.url, *SMALL, "--api-key", "secret")
    assert {headers["authorization"] for headers in server.headers} == {"Bearer secret"}


def test_the_key_may_come_from_the_environment(run, monkeypatch):
    monkeypatch.setattr(ENV.API_KEY, "value", "from-the-environment")
    with openai_stub() as server:
        run("bench", "serve", "--url", server.url, *SMALL)
    assert {headers["authorization"] for headers in server.headers} == {"Bearer from-the-environment"}


def test_a_server_that_does_not_name_its_model_is_quoted(run):
    with openai_stub() as server:
        done = run("bench", "serve", "--url", f"{server.url}/elsewhere")
    assert done.code == 2
    assert done.err.strip() == "error: /v1/models names no model (HTTP 404: not here); --model does"


def test_a_missing_extra_is_named(run, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("minisgl.cli.bench.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "httptools", None)
    done = run("bench", "serve")
    assert done.code == 2
    assert "pip install 'minisgl[server]' (httptools is missing)" in done.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--url", "ftp://x"), "--url ftp://x: not an address"),
        (("--rate", "2", "--concurrency", "2"), "--rate 2: it is over 0, and given without --concurrency"),
        (("--rate", "-1"), "--rate -1: it is over 0"),
        (("--rate", "nan"), "--rate nan: it is over 0"),
        (("--timeout", "0"), "--timeout 0: it is over 0"),
        (("--timeout", "nan"), "--timeout nan: it is over 0"),
        (("--url", "http://127.0.0.1:1"), "error: "),
    ],
)
def test_wrong_options_are_one_line_and_exit_2(run, options, words):
    done = run("bench", "serve", *options)
    assert done.code == 2
    assert words in done.err
    assert len(done.err.splitlines()) == 1

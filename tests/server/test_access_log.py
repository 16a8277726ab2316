from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from dataclasses import replace

import pytest
from support.server_app import ask, make_app

from minisgl.core import Explanation
from minisgl.env import ENV
from minisgl.server.access_log import fields_of, log_request
from minisgl.server.explaining import Reasons
from minisgl.server.logs import FOREIGN, install_logs
from minisgl.server.records import RequestRecord
from minisgl.utils.logging import ROOT

GENERATED = RequestRecord(
    "req-1",
    "POST",
    "/v1/completions",
    status=200,
    total_s=0.5,
    endpoint="/v1/completions",
    prompt_tokens=37,
    cached_tokens=36,
    generated_tokens=8,
    queue_s=0.0012345678,
    first_token_s=0.04,
    finish_reason="stop",
)


@pytest.fixture(autouse=True)
def _loggers_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(ENV.LOG_FORMAT, "value", "text")
    monkeypatch.setenv("MINISGL_LOG_FORMAT", "text")
    own = ("minisgl.server.access_log", "minisgl.server.reporter")
    loggers = [logging.getLogger(name) for name in (ROOT, *FOREIGN, *own)]
    before = [(logger, list(logger.handlers), logger.level, logger.propagate) for logger in loggers]
    yield
    for logger, handlers, level, propagate in before:
        logger.handlers[:], logger.propagate = handlers, propagate
        logger.setLevel(level)


Capture = pytest.CaptureFixture[str]


def install(*, as_json: bool = False, requests: bool = True) -> None:
    install_logs(as_json=as_json, requests=requests)


def test_a_request_that_generated_is_one_line_with_its_tokens_and_times(capsys: Capture) -> None:
    install()
    log_request(GENERATED)
    (line,) = capsys.readouterr().err.splitlines()
    times = "queue=1.2ms first=40.0ms finish=stop total=500.0ms"
    assert line.endswith(f"POST /v1/completions 200 req-1 prompt=37 cached=36 generated=8 {times}")


def with_reasons(*explanations: Explanation) -> RequestRecord:
    record = replace(GENERATED, prompt_tokens=600)
    for explanation in explanations:
        record.note_reasons(Reasons.of(explanation))
    return record


def test_a_line_says_why_tokens_were_computed_and_where_the_prompt_left_the_cache(capsys: Capture) -> None:
    install()
    gone = {"evicted": 512, "evicted_s": 12.4, "evicted_tokens": 4096, "left_at": 548}
    log_request(with_reasons(Explanation(hit=36, never_seen=52, **gone)))
    (line,) = capsys.readouterr().err.splitlines()
    assert " prompt=600 cached=36 evicted=512(12s ago) never_seen=52 left_at=548 generated=8 " in line


@pytest.mark.parametrize(
    ("explanation", "words"),
    [
        (Explanation(hit=599, last_token=1, left_at=600), ""),
        (Explanation(evicted=599, last_token=1, left_at=600, evicted_s=1800.0), " evicted=599(30min ago)"),
        (Explanation(hit=8, joined=64, never_seen=528, left_at=72), " joined=64 never_seen=528 left_at=72"),
        (Explanation(other_namespace=599, last_token=1), " other_namespace=599 left_at=0"),
        (Explanation(not_looked_up=600), " not_looked_up=600"),
    ],
)
def test_a_line_is_silent_about_what_is_as_usual(explanation: Explanation, words: str, capsys: Capture) -> None:
    install()
    log_request(with_reasons(explanation))
    line = capsys.readouterr().err
    assert f" cached=36{words} generated=8 " in line


def test_the_fields_have_causes_of_all_prompts_and_the_place_of_an_only_one() -> None:
    one = Explanation(hit=3, evicted=4, never_seen=1, left_at=7, evicted_s=2.00000049, evicted_tokens=9)
    fields = fields_of(with_reasons(one))
    assert fields["causes"] == {"hit": 3, "evicted": 4, "never_seen": 1}
    assert (fields["left_at"], fields["evicted_s"], fields["evicted_tokens"]) == (7, 2.0, 9)
    of_two = fields_of(with_reasons(one, Explanation(never_seen=2)))
    assert of_two["causes"] == {"hit": 3, "evicted": 4, "never_seen": 3}
    assert {"left_at", "evicted_s", "evicted_tokens"}.isdisjoint(of_two)
    assert "causes" not in fields_of(GENERATED)


def test_another_request_is_one_line_too(capsys: Capture) -> None:
    install()
    response = ask(make_app(), "GET", "/v1/nope")
    (line,) = capsys.readouterr().err.splitlines()
    assert f"GET /v1/nope 404 {response.headers['x-request-id']} total=" in line


def test_probes_are_not_shown(capsys: Capture) -> None:
    install()
    ask(make_app(), "GET", "/health")
    assert capsys.readouterr().err == ""


def test_request_lines_can_be_turned_off_and_warnings_stay(capsys: Capture) -> None:
    install(requests=False)
    log_request(GENERATED)
    logging.getLogger("minisgl.server.access_log").warning("still here")
    assert [line.split()[-1] for line in capsys.readouterr().err.splitlines()] == ["here"]


def test_as_json_every_line_is_an_object_tracebacks_and_uvicorn_included(capsys: Capture) -> None:
    install(as_json=True)
    log_request(GENERATED)
    try:
        raise LookupError("two\nlines")
    except LookupError:
        logging.getLogger("minisgl.server.app").exception("it failed")
    logging.getLogger("uvicorn.error").warning("odd request")
    request, failure, foreign = map(json.loads, capsys.readouterr().err.splitlines())
    assert {**request, **fields_of(GENERATED)} == request
    assert request["queue_s"] == 0.001235
    assert (failure["level"], failure["message"]) == ("ERROR", "it failed")
    assert "LookupError: two\nlines" in failure["exception"]
    assert foreign["message"] == "odd request"
    assert os.environ["MINISGL_LOG_FORMAT"] == "json", "which the engine's process inherits"


def test_a_path_cannot_forge_a_line(capsys: Capture) -> None:
    install()
    ask(make_app(), "GET", "/x%0aPOST%1b[2J")
    (line,) = capsys.readouterr().err.splitlines()
    assert "\x1b" not in line


def test_a_long_path_makes_no_long_line(capsys: Capture) -> None:
    install()
    ask(make_app(), "GET", "/x" * 30_000)
    assert len(capsys.readouterr().err) < 1000

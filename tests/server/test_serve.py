"""What `serve` puts together, and with which of the options."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.applications import Starlette

from minisgl.llm import LLMConfig
from minisgl.server import serve as module
from minisgl.server.config import ServerConfig
from minisgl.server.records import RequestRecord
from minisgl.server.reporter import Reporter
from minisgl.server.state import ServerState


@pytest.fixture
def apps(monkeypatch: pytest.MonkeyPatch) -> list[Starlette]:
    """The applications that would have been served. A request on each of them is opened and closed."""
    served: list[Starlette] = []

    class Lifecycle:
        def __init__(self, app: Starlette, *rest: Any) -> None:
            served.append(app)

        async def run(self) -> int:
            book = served[-1].state.server.book
            record = RequestRecord("req-1", "POST", "/v1/completions", endpoint="/v1/completions", status=200)
            book.open(record)
            book.close(record)
            return await asyncio.sleep(0, 7)

    monkeypatch.setattr(module, "Lifecycle", Lifecycle)
    monkeypatch.setattr(module, "install_logs", lambda **options: None)
    return served


def serve(apps: list[Starlette], engine: dict[str, Any] | None = None, **server: Any) -> ServerState:
    config = LLMConfig.from_kwargs(**(engine or {}))
    assert module.serve(config, ServerConfig(port=0, **server), lambda *tell: pytest.fail("it loads"), Reporter()) == 7
    state: ServerState = apps[-1].state.server
    return state


def test_the_models_name_is_as_it_was_asked_for_or_as_it_is_served(apps: list[Starlette]) -> None:
    assert serve(apps, {"model": "some/model"}).model_name == "some/model"
    assert serve(apps, {"model": "some/model"}, served_model_name="chat").model_name == "chat"


def test_what_runs_and_what_waits_bound_the_gate(apps: list[Starlette]) -> None:
    assert serve(apps, {"max_running_req": 4}, max_queued=8).gate.capacity == 12


def test_a_request_that_is_over_is_counted_and_traced_if_a_collector_is_named(
    apps: list[Starlette], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    class Tracing:
        def __init__(self, endpoint: str, model_name: str) -> None:
            told.append(f"{endpoint} {model_name}")

        def __call__(self, record: RequestRecord) -> None:
            told.append(record.request_id)

        def close(self) -> None:
            told.append("closed")

    monkeypatch.setattr(module, "start_tracing", lambda endpoint, name: Tracing(endpoint, name) if endpoint else None)
    assert serve(apps).metrics.responses == {200: 1}
    assert told == []
    serve(apps, {"model": "m"}, otlp_endpoint="http://collector:4318")
    assert told == ["http://collector:4318 m", "req-1", "closed"]


@pytest.mark.parametrize(
    ("options", "warns"),
    [({}, False), ({"host": "0.0.0.0"}, True), ({"host": "0.0.0.0", "api_key": "k"}, False), ({"host": "::1"}, False)],
)
def test_a_server_that_others_reach_without_a_key_warns_of_it(
    apps: list[Starlette], options: dict[str, Any], warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    serve(apps, **options)
    assert bool([record for record in caplog.records if "0.0.0.0" in record.getMessage()]) == warns

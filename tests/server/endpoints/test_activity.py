"""What the engine does, for people to look at."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.asgi import CHAT, HI, Api
from support.server_app import ask

from minisgl.message import Activity, EngineStats, RequestNow, Sizes, StepRecord
from minisgl.message.activity import pack_uids
from minisgl.server.config import ServerConfig
from minisgl.server.records import RequestRecord

PATH = "/inspect/activity"
STEP = StepRecord(
    step=12,
    begin_s=3.0,
    plan_s=0.25,
    launch_s=0.5,
    wait_s=0.125,
    commit_s=0.0625,
    settled_s=None,
    device_s=(3.25, 3.75),
    prefills=((4, 0, 100),),
    decodes=pack_uids(np.array([2, 3])),
    arrived=((5, 2.5, 17),),
    admitted=(4,),
    retracted=(1,),
    finished=(0,),
    aborted=(),
    sizes=Sizes(10, 20, 30, 4, 3, 1),
)
REQUEST = RequestNow(
    uid=2,
    state="decode",
    prompt_tokens=9,
    cached_tokens=4,
    done_tokens=11,
    generated_tokens=3,
    arrived_s=1.0,
    admitted_s=1.5,
    waits_for=None,
)


def test_steps_and_requests_are_told_with_the_step_to_go_on_with() -> None:
    api = Api()
    stats = EngineStats(uptime_s=4.0, capacity_hits=(1.0, 2.0, 3.0, 4.0, 5.0), capacity_queried=10, causes={"hit": 7})
    api.link.activity = Activity(stats, [STEP], 13, [REQUEST])
    record = RequestRecord("req-1", uids=(1, 2))
    api.state.book.open(record)
    answer = api.get(f"{PATH}?since=9").json()
    assert api.link.asked_since == [9]
    assert (answer["now_s"], answer["next"]) == (4.0, 13)
    assert answer["stats"]["uptime_s"] == 4.0
    assert answer["capacity"][0] == {"factor": 0.5, "hit_rate": 0.1}
    assert [point["factor"] for point in answer["capacity"]] == [0.5, 1, 2, 4, 8]
    assert answer["causes"] == {"hit": 7}
    (step,), (request,) = answer["steps"], answer["requests"]
    assert (step["prefills"], step["decodes"], step["arrived"]) == ([[4, 0, 100]], [2, 3], [[5, 2.5, 17]])
    assert (step["device_s"], step["evicted_tokens"], step["num_waiting"]) == ([3.25, 3.75], 4, 1)
    assert (request["uid"], request["request_id"], request["state"]) == (2, "req-1", "decode")


def test_a_request_of_nobody_has_no_id() -> None:
    api = Api()
    api.link.activity = Activity(EngineStats(), [], 0, [REQUEST])
    assert api.get(PATH).json()["requests"][0]["request_id"] is None
    assert api.link.asked_since == [0]


def test_latencies_are_there_once_something_was_generated() -> None:
    api = Api()
    assert set(api.get(PATH).json()["latency"].values()) == {None}
    api.whole(CHAT, messages=HI, max_tokens=4)
    latency: dict[str, Any] = api.get(PATH).json()["latency"]
    for name in ("first_token_s", "total_s"):
        assert 0 < latency[name]["p50"] <= latency[name]["p90"] <= latency[name]["p99"], name


@pytest.mark.parametrize("since", ["-1", "x", "1.5", ""])
def test_a_step_is_a_number(since: str) -> None:
    assert Api().get(f"{PATH}?since={since}").json()["error"]["param"] == "since"


def test_it_is_behind_the_key_and_wants_an_engine() -> None:
    assert Api(config=ServerConfig(api_key="k")).get(PATH).status_code == 401
    assert ask(Api(engine=None).app, "GET", PATH).json()["error"]["code"] == "model_loading"

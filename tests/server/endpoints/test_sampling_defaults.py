"""Who says how tokens are chosen: the request, else the model's files, else OpenAI."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from support.asgi import CHAT, COMPLETIONS, GENERATE, HI, Api, says

from minisgl.core import SamplingParams
from minisgl.message import EngineInfo
from minisgl.server.config import ServerConfig

ADVISED: dict[str, Any] = {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "repetition_penalty": 1.05}
PATHS = (CHAT, COMPLETIONS, GENERATE)


def make_api(advised: dict[str, Any] = ADVISED, **config: Any) -> Api:
    fields = {field.name: None for field in dataclasses.fields(EngineInfo)}
    info = EngineInfo(**{**fields, "sampling_defaults": advised})  # type: ignore[arg-type]
    return Api(says("Hello"), config=ServerConfig(**config), info=info)


def params_of(api: Api, path: str, **sampling: Any) -> SamplingParams:
    """With which the engine gets a request whose body has this."""
    body: dict[str, Any] = {CHAT: {"messages": HI}, COMPLETIONS: {"prompt": "Hi"}, GENERATE: {"text": "Hi"}}[path]
    api.whole(path, **body, **({"sampling_params": sampling} if path == GENERATE else sampling))
    return api.link.requests[-1].sampling_params


def shown(params: SamplingParams) -> dict[str, Any]:
    return {name: getattr(params, name) for name in ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")}


@pytest.mark.parametrize("path", PATHS)
def test_the_model_s_files_say_what_a_request_does_not(path: str) -> None:
    assert shown(params_of(make_api(), path)) == ADVISED | {"min_p": 0.0}


@pytest.mark.parametrize("path", PATHS)
def test_a_request_wins_field_by_field_and_null_is_no_word(path: str) -> None:
    given = params_of(make_api(), path, temperature=1.5, top_k=-1, top_p=None)
    assert shown(given) == ADVISED | {"temperature": 1.5, "top_k": -1, "min_p": 0.0}


@pytest.mark.parametrize("path", PATHS)
def test_who_asks_for_temperature_0_gets_the_most_likely_token(path: str) -> None:
    assert shown(params_of(make_api(), path, temperature=0)) == shown(SamplingParams())


@pytest.mark.parametrize("path", PATHS)
def test_a_greedy_model_stays_greedy_until_a_request_asks_for_more(path: str) -> None:
    api = make_api({"temperature": 0.0, "repetition_penalty": 1.1})
    assert shown(params_of(api, path)) == shown(SamplingParams(repetition_penalty=1.1))
    assert params_of(api, path, temperature=0.5).temperature == 0.5


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("api", [make_api(generation_config="none"), make_api({}), Api(says("Hello"))])
def test_else_openai_s_temperature_counts(path: str, api: Api) -> None:
    assert shown(params_of(api, path)) == shown(SamplingParams(temperature=1.0))


def test_what_counts_is_shown_with_the_model() -> None:
    assert make_api().get("/v1/models/a-model").json()["sampling_defaults"] == ADVISED
    plain = make_api(generation_config="none").get("/v1/models").json()["data"][0]
    assert plain["sampling_defaults"] == {"temperature": 1.0}


def test_another_switch_than_auto_and_none_is_refused() -> None:
    with pytest.raises(ValueError, match="generation_config='vllm' is not one of auto, none"):
        ServerConfig(generation_config="vllm")

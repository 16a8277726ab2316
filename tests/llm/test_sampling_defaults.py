"""What a model's files advise on sampling: taken by the server, offered to programs, shown in the engine's news."""

from __future__ import annotations

import json
from pathlib import Path

from support.tiny_model import make_tiny_model

from minisgl import LLM, SamplingParams
from minisgl.llm.engine_process import info_of
from minisgl.message import EngineReady
from minisgl.message.wire import news_codec

ADVISED = {"temperature": 0.6, "top_k": 20, "top_p": 0.95}


def make_advised_model(folder: Path) -> Path:
    make_tiny_model(folder)
    file = folder / "generation_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"do_sample": True} | ADVISED))
    return folder


def test_a_program_is_greedy_until_it_takes_the_model_s_advice(tmp_path: Path) -> None:
    with LLM(str(make_advised_model(tmp_path)), num_page_override=64) as llm:
        assert llm.sampling_defaults == ADVISED
        prompts = ["a", "b", "c"]
        greedy = [output["token_ids"] for output in llm.generate(prompts, SamplingParams(temperature=0))]
        assert [output["token_ids"] for output in llm.generate(prompts)] == greedy
        advised = SamplingParams(**llm.sampling_defaults, max_tokens=30, seed=1)
        assert (advised.temperature, advised.top_k, advised.top_p) == (0.6, 20, 0.95)
        assert [output["token_ids"] for output in llm.generate(prompts, advised)] != greedy


def test_an_engine_tells_the_server_and_integers_stay_integers(tmp_path: Path) -> None:
    with LLM(str(make_advised_model(tmp_path)), num_page_override=64) as llm:
        ready = EngineReady(info_of(llm._parts, llm.config, tmp_path))
    (received,) = news_codec().decode(news_codec().encode([ready]))
    assert isinstance(received, EngineReady)
    assert received.info.sampling_defaults == ADVISED
    assert isinstance(received.info.sampling_defaults["top_k"], int)

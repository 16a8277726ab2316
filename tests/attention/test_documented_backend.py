"""The backend of docs/add-a-backend.md, taken from the page."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.attention import NUM_LAYERS, AttentionCase, Shape, assert_close
from support.attention_batches import BATCHES, MIXED
from support.documents import ROOT, blocks
from support.tiny_model import make_tiny_model

from minisgl import LLM, SamplingParams
from minisgl.attention import ATTENTION_BACKENDS, AttnForm
from minisgl.engine import engine

NAME = "plain"


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's code registers it, for one test."""
    monkeypatch.setattr(ATTENTION_BACKENDS, "_items", dict(ATTENTION_BACKENDS._items))
    exec("\n".join(blocks(ROOT / "docs" / "add-a-backend.md", "python")), {"__name__": "page"})


@pytest.mark.parametrize("name", BATCHES)
def test_every_kind_of_batch_is_as_by_the_book(name: str) -> None:
    case = AttentionCase(BATCHES[name], Shape(), scattered=True)
    assert_close(case.run(name=NAME), case.expected(), torch.float32)


@pytest.mark.parametrize("layer_id", range(NUM_LAYERS))
def test_windows_soft_caps_and_sinks_are_obeyed(layer_id: int) -> None:
    form = AttnForm(scale=0.3, softcap=5.0, windows=(3, 0))
    case = AttentionCase(MIXED, Shape(dtype=torch.bfloat16), form=form, has_sinks=True)
    assert_close(case.run(layer_id, NAME), case.expected(layer_id), torch.bfloat16)


def test_an_engine_generates_with_it_what_it_does_with_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def generate() -> list[list[int]]:
        with LLM(str(model), num_page_override=256, page_size=4, attention_backend="torch") as llm:
            outputs = [llm.generate(["one prompt", "one prompt more"], SamplingParams(max_tokens=8)) for _ in range(2)]
            assert outputs[1][1]["cached_tokens"] > 0
        return [output["token_ids"] for each in outputs for output in each]

    model = make_tiny_model(tmp_path)
    expected = generate()
    make = ATTENTION_BACKENDS[NAME]
    used = []
    monkeypatch.setattr(engine, "create_attention_backend", lambda name, config: used.append(name) or make(config))
    assert generate() == expected
    assert used

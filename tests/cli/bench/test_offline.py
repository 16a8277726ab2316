"""Benchmarks of an engine in this process, on a tiny model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.tiny_model import make_tiny_model

from minisgl import LLM
from minisgl.cli.bench.offline import DATASETS, Workload, measure

Run = Callable[..., Any]
SMALL = ("--num-prompts", "5", "--input-len", "6", "--output-len", "4", "--prefix-len", "20", "--num-pages", "512")


def workload(dataset: str, **fields: Any) -> Workload:
    sizes = {"num_prompts": 5, "input_len": 6, "output_len": 4, "prefix_len": 20, "num_groups": 2, "seed": 0}
    return Workload(dataset=dataset, **{**sizes, **fields})


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.mark.parametrize("dataset", DATASETS)
def test_prompts_are_the_same_for_the_same_seed_and_others_for_another(dataset: str) -> None:
    first, again, other = (workload(dataset, seed=seed).prompts(300) for seed in (1, 1, 2))
    assert first == again != other
    assert 3 <= np.min(first) <= np.max(first) < 300


def test_prompts_share_as_many_prefixes_as_there_are_groups() -> None:
    prompts = workload("shared-prefix", num_prompts=40).prompts(300)
    assert len({tuple(prompt[:20]) for prompt in prompts}) == 2
    assert {len(prompt) for prompt in prompts} == {26}
    assert len({tuple(prompt[20:]) for prompt in prompts}) == 40


def test_all_that_the_engine_did_is_in_the_steps(tiny: Path) -> None:
    with LLM(str(tiny), num_page_override=512) as llm:
        prompts = workload("shared-prefix", num_groups=1).prompts(300)
        for _ in range(2):  # what the first run left in the cache is gone
            run = measure(llm, prompts, output_len=4)
            summary = run.summary()
            assert summary["prompt_tokens"] == 5 * 26
            assert summary["computed_tokens"] == summary["prompt_tokens"] - summary["cached_tokens"] == 5 * 26 - 4 * 20
            assert summary["output_tokens"] == 5 * 4
            assert sum(step.num_prompt_tokens for step in run.steps) == summary["computed_tokens"]
            assert sum(step.num_decodes for step in run.steps) == 5 * 3  # the first token comes with the prompt
        assert "_forward" not in vars(llm)


def test_bench_offline_reports_writes_and_draws(run: Run, tiny: Path, tmp_path: Path) -> None:
    files = ("--json", str(tmp_path / "out.json"), "--plot", str(tmp_path / "out.svg"))
    done = run("bench", "offline", "--model", str(tiny), *SMALL, *files)
    assert done.code == 0, done.err
    assert "5 prompts, 6 in, 4 out" in " ".join(done.out.split())  # a long path wraps the title
    summary = json.loads((tmp_path / "out.json").read_text())
    assert (summary["prompt_tokens"], summary["computed_tokens"], summary["output_tokens"]) == (30, 30, 20)
    assert (summary["model"], summary["dataset"], summary["num_pages"]) == (str(tiny), "random", 512)
    assert "tokens a second" in (tmp_path / "out.svg").read_text()


@pytest.mark.parametrize("options", [(), ("--eviction", "lfu", "--lookahead", "4")], ids=["plain", "only for radix"])
def test_bench_radix_compares_both_caches(run: Run, tiny: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    files = ("--json", str(tmp_path / "out.json"), "--plot", str(tmp_path / "out.svg"))
    done = run("bench", "radix", "--model", str(tiny), *SMALL, *options, *files)
    assert done.code == 0, done.err
    assert "the same tokens for 5 of 5 prompts" in done.out
    found = json.loads((tmp_path / "out.json").read_text())
    assert {name: each["computed_tokens"] for name, each in found["runs"].items()} == {"naive": 130, "radix": 50}
    assert found["num_same"] == 5
    assert "prompt tokens computed" in (tmp_path / "out.svg").read_text()


def test_tokens_that_differ_where_they_must_not_are_told_and_exit_1(
    run: Run, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minisgl.cli.bench_radix.measure", lambda llm, *given: spoiled(llm, measure(llm, *given)))
    done = run("bench", "radix", "--model", str(tiny), *SMALL)
    assert done.code == 1
    assert "the same tokens for 4 of 5 prompts" in done.out


def spoiled(llm: LLM, result: Any) -> Any:
    if llm.config.scheduler.cache_type == "radix":
        result.outputs[2]["token_ids"] = [0]
    return result


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("radix", "--cache-type", "naive"), "both caches are measured, so none is named"),
        (("offline", "--plot", "x.gif"), "a picture ends in .svg or .png"),
        (("radix", "--json", "/nowhere/x.json"), "there is no folder"),
        (("offline", "--num-prompts", "0"), "--num-prompts"),
    ],
)
def test_what_cannot_be_is_refused_before_the_model_is_loaded(run: Run, arguments: tuple[str, ...], words: str) -> None:
    done = run("bench", *arguments, "--model", "no such model")
    assert done.code == 2
    assert words in done.err

"""Inputs that broke other servers, on a tiny model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from minisgl import LLM, SamplingParams

GREEDY = SamplingParams(max_tokens=6, ignore_eos=True, logprobs=0)


@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("length", [1, 15, 16, 17, 32])
def test_a_fully_cached_prompt_still_computes_a_token(tiny: Path, page_size: int, length: int) -> None:
    """The same prompt twice, then with its own output, then a prefix of it; others crashed on a zero-length prefill."""
    prompt = [(7 * i) % 256 for i in range(length)]
    with LLM(str(tiny), page_size=page_size, num_page_override=512 // page_size) as llm:
        first, second = (llm.generate(prompt, GREEDY)[0] for _ in range(2))
        assert second["token_ids"] == first["token_ids"]
        assert second["cached_tokens"] == (length - 1) // page_size * page_size
        longer = prompt + first["token_ids"]
        assert llm.generate(longer, GREEDY)[0]["cached_tokens"] <= len(longer) - 1
        shorter = prompt[: max(1, length - 3)]
        assert llm.generate(shorter, GREEDY)[0]["cached_tokens"] <= len(shorter) - 1
        llm.cache_manager.check_integrity()


def test_logprobs_do_not_depend_on_a_hit_or_on_chunks(tiny: Path) -> None:
    prompts = [[(11 * i + s) % 256 for i in range(60 + s)] for s in range(5)]
    found = []
    for chunk in (16, 4096):
        with LLM(str(tiny), num_page_override=1024, max_extend_tokens=chunk) as llm:
            for _ in range(2):
                found.append([entry for prompt in prompts for entry in llm.generate(prompt, GREEDY)[0]["logprobs"]])
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            assert a.token_id == b.token_id
            assert a.logprob == pytest.approx(b.logprob, abs=1e-4)


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_near_the_context_is_cut_and_over_it_is_refused(llm: LLM, stream: bool) -> None:
    """The context is 512: 502 + 100 gives 10 tokens and "length"; 512 leaves no room for one."""
    params = SamplingParams(max_tokens=100, ignore_eos=True)
    result = llm.generate([[5] * 502], params, stream=stream)
    output = list(result)[-1]["output"] if stream else result[0]
    assert len(output["token_ids"]) == 10
    assert output["finish_reason"] == "length"
    for length in (512, 513, 5120):
        with pytest.raises(ValueError, match=rf"{length} tokens, but the context length is 512"):
            llm.generate([[5] * length], params, stream=stream)


def test_a_request_larger_than_the_pool_blocks_nobody(tiny: Path) -> None:
    with LLM(str(tiny), num_page_override=64) as llm:
        with pytest.raises(ValueError, match="only 64"):
            llm.generate([[5] * 100], GREEDY)
        cut, *small = llm.generate([[5] * 60, [1], [2], [3]], SamplingParams(max_tokens=100, ignore_eos=True))
        assert cut["finish_reason"] == "length"
        assert len(cut["token_ids"]) == 5
        assert all(len(output["token_ids"]) == 64 for output in small)


def test_two_streams_of_equal_prompts_get_their_own_full_answers(llm: LLM) -> None:
    chunks = list(llm.generate([[9, 8, 7]] * 3, GREEDY, stream=True))
    texts = [[token for c in chunks if c["index"] == i for token in c["token_ids"]] for i in range(3)]
    assert texts[0] == texts[1] == texts[2]
    assert len(texts[0]) == 6


def test_a_greedy_row_beside_sampled_ones_stays_greedy(llm: LLM) -> None:
    alone = llm.generate("hello", GREEDY)[0]["token_ids"]
    wild = [
        SamplingParams(temperature=1.5, top_k=5, top_p=0.3, max_tokens=k, ignore_eos=True)
        for k in (1, 2, 4, 5, 6, 8, 9)
    ]
    for place in range(0, 8, 3):
        params = [*wild[:place], GREEDY, *wild[place:]]
        prompts = ["x"] * 8
        prompts[place] = "hello"
        assert llm.generate(prompts, params)[place]["token_ids"] == alone


def test_min_tokens_masks_every_end_token(llm: LLM) -> None:
    greedy = llm.generate("hello", SamplingParams(max_tokens=8, ignore_eos=True))[0]["token_ids"]
    params = SamplingParams(max_tokens=8, min_tokens=5, stop_token_ids=greedy[:3])
    out = llm.generate("hello", params)[0]["token_ids"]
    assert len(out) > 5
    assert not set(out[:5]) & set(greedy[:3])


def test_a_nan_row_fails_alone(tiny: Path) -> None:
    with LLM(str(tiny), num_page_override=256) as llm:
        alone = llm.generate("good", GREEDY)[0]["token_ids"]
        compute = llm._parts.engine.model.compute_logits

        def poisoned(hidden: object) -> object:
            logits = compute(hidden)  # type: ignore[arg-type]
            if len(logits) > 1:
                logits[0] = float("nan")
            return logits

        llm._parts.engine.model.compute_logits = poisoned  # type: ignore[method-assign, assignment]
        bad, good = llm.generate(["bad", "good"], GREEDY)
        assert bad["finish_reason"] == "error"
        assert "NaN" in bad["error"]
        assert good["token_ids"] == alone
        llm.cache_manager.check_integrity()


@pytest.mark.parametrize("overlap", ["off", "on"])
def test_a_chunk_with_nan_is_not_kept_for_others(tiny: Path, overlap: str) -> None:
    """NaN times a weight of zero is NaN, so the bad token also spoils the KV of tokens before it in its chunk."""
    system = [1, 2, 3, 4, 5]
    with LLM(str(tiny), max_extend_tokens=8, num_page_override=256, overlap=overlap) as llm:
        embedding = llm._parts.engine.model.model.embed_tokens.weight
        with torch.inference_mode():
            embedding[255] = float("nan")
        assert llm.generate([*system, 255, *[7] * 5], GREEDY)[0]["finish_reason"] == "error"
        assert llm.generate([*system, 9], GREEDY)[0]["finish_reason"] == "length"
        llm.cache_manager.check_integrity()


@pytest.mark.parametrize("char", ["x", "é", "世", "🦀"])
def test_a_text_that_is_too_long_by_far_is_refused_before_it_is_tokenized(
    llm: LLM, monkeypatch: pytest.MonkeyPatch, char: str
) -> None:
    """Whatever its script: the bound is on bytes, as those of tokens are."""
    monkeypatch.setattr(llm.client.tokenizer, "_plain_backend", lambda: pytest.fail("it was tokenized"))
    num_bytes = 4 * llm.client.tokenizer.longest_token * 513
    text = char * (num_bytes // len(char.encode()) + 1)
    for prompt in (text, [text]):
        with pytest.raises(ValueError, match=rf"{len(text)} characters, so at least 513 .* context length is 512"):
            llm.generate(prompt)
    with pytest.raises(ValueError, match=r"characters, so at least 51\d tokens"):
        llm.chat([{"role": "user", "content": text}])


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"memory_ratio": "0.5"}, "memory_ratio='0.5'"),
        ({"dtype": None}, "dtype=None"),
        ({"page_size": None}, "page_size=None"),
        ({"max_running_req": 10**25}, "max_running_req="),
        ({"max_running_req": 10**10}, "max_running_req="),
    ],
)
def test_absurd_options_are_refused_by_name(tiny: Path, config: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LLM(str(tiny), **config)


def test_numpy_numbers_are_options_too(tiny: Path) -> None:
    with LLM(str(tiny), page_size=np.int64(4), num_page_override=np.int32(64)) as llm:
        assert llm.stats()["page_size"] == 4

"""SmolLM2 end to end, in float32: the tokens of transformers, cold and warm, alone and in company."""

from __future__ import annotations

import json

import pytest
from support.smollm2_reference import MAX_TOKENS, PATH, greedy, load_transformers, make_prompts

from minisgl import LLM, SamplingParams
from minisgl.utils.model_store import SMOLLM2, resolve_model

pytestmark = pytest.mark.slow
CASES = json.loads(PATH.read_text())
GREEDY = SamplingParams(max_tokens=MAX_TOKENS)


def test_all_prompts_together_give_the_tokens_of_transformers_cold_and_warm(smollm2: LLM) -> None:
    prompts = [case["prompt"] for case in CASES]
    assert len(prompts) >= 40
    assert {len(ids) for ids in prompts} >= {1, 1500}
    cold = smollm2.generate(prompts, GREEDY)
    warm = smollm2.generate(prompts, GREEDY)
    assert [out["token_ids"] for out in cold] == [case["tokens"] for case in CASES]
    assert [out["token_ids"] for out in warm] == [case["tokens"] for case in CASES]
    assert [out["cached_tokens"] for out in warm] == [len(ids) - 1 for ids in prompts]


@pytest.mark.parametrize("index", range(3, len(CASES), 12))
def test_a_prompt_alone_gives_the_same(smollm2: LLM, index: int) -> None:
    assert smollm2.generate(CASES[index]["prompt"], GREEDY)[0]["token_ids"] == CASES[index]["tokens"]


def test_prompts_and_chats_are_tokenized_as_transformers_does(smollm2: LLM) -> None:
    assert make_prompts(smollm2.tokenizer) == [case["prompt"] for case in CASES]


def test_a_stop_string_over_three_tokens(smollm2: LLM) -> None:
    """Greedy goes on " D, E, F, G"; the earliest match wins, whatever the order of the list."""
    prompt = "The alphabet is A, B, C,"
    for stop in (["E, F"], [", E", "E"], "E"):
        out = smollm2.generate(prompt, SamplingParams(max_tokens=20, stop=stop))[0]
        streamed = list(smollm2.generate(prompt, SamplingParams(max_tokens=20, stop=stop), stream=True))
        assert out["text"] == "".join(chunk["text"] for chunk in streamed)
        assert out["text"] == (" D" if stop == [", E", "E"] else " D, ")
        assert out["finish_reason"] == "stop"


def test_text_in_many_bytes_a_character_streams_whole(smollm2: LLM) -> None:
    params = SamplingParams(max_tokens=30, ignore_eos=True)
    chunks = list(smollm2.generate("한글 " * 6, params, stream=True))
    ids = [token for chunk in chunks for token in chunk["token_ids"]]
    assert "".join(chunk["text"] for chunk in chunks) == smollm2.tokenizer.decode(ids, skip_special_tokens=True)


def test_a_chat_keeps_its_history_cached(smollm2: LLM) -> None:
    history = [{"role": "user", "content": "My name is Ada. Say hello."}]
    first = smollm2.chat(history, SamplingParams(temperature=0, max_tokens=12))
    history += [{"role": "assistant", "content": first["text"]}, {"role": "user", "content": "What is my name?"}]
    second = smollm2.chat(history, SamplingParams(temperature=0, max_tokens=12))
    assert second["cached_tokens"] >= first["prompt_tokens"]


def test_a_chat_with_the_alias_samples_as_the_model_s_card_advises(smollm2: LLM) -> None:
    assert smollm2.sampling_defaults == SMOLLM2.sampling
    question = [{"role": "user", "content": "What is the capital of France?"}]
    for seed in range(8):
        out = smollm2.chat(question, SamplingParams(seed=seed, max_tokens=64))
        assert (out["text"], out["finish_reason"]) == ("The capital of France is Paris.", "stop")


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_the_stored_answers_are_those_of_transformers() -> None:
    tokenizer, model = load_transformers(resolve_model("smollm2"))
    assert make_prompts(tokenizer) == [case["prompt"] for case in CASES]
    for case in CASES[::4]:
        assert greedy(model, case["prompt"]) == case["tokens"]


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("page_size", [1, 16, 64])
@pytest.mark.parametrize("chunk", [16, 64, 4096])
@pytest.mark.parametrize("cache_type", ["naive", "radix"])
@pytest.mark.parametrize("overlap", ["off", "on"])
def test_the_switches_keep_the_tokens(page_size: int, chunk: int, cache_type: str, overlap: str) -> None:
    config = {"page_size": page_size, "max_extend_tokens": chunk, "cache_type": cache_type, "overlap": overlap}
    cases = CASES[::4]
    with LLM("smollm2", dtype="float32", num_page_override=16384 // page_size, **config) as llm:
        for _ in range(2):
            outs = llm.generate([case["prompt"] for case in cases], GREEDY)
            assert [out["token_ids"] for out in outs] == [case["tokens"] for case in cases]
        llm.cache_manager.check_integrity()

"""`LLM` as a program uses it, on a tiny random model."""

from __future__ import annotations

import gc
import os
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from support.terminal import impatient_terminal
from transformers import BatchEncoding

from minisgl import LLM, SamplingParams
from minisgl.core import BatchOutput, ForwardInput
from minisgl.env import ENV
from minisgl.llm import EngineDied

PROMPT = "Hello, tiny model"
SHORT = SamplingParams(max_tokens=8, ignore_eos=True)


def test_output_tells_text_tokens_and_counts(llm: LLM) -> None:
    out = llm.generate(PROMPT, SHORT)[0]
    assert out["text"] == llm.tokenizer.decode(out["token_ids"], skip_special_tokens=True)
    assert out["finish_reason"] == "length"
    assert out["prompt_tokens"] == len(PROMPT)
    assert out["cached_tokens"] == 0
    assert len(out["token_ids"]) == 8
    assert 0 < out["timings"]["first_token_s"] <= out["timings"]["total_s"]
    assert llm.generate(PROMPT, SHORT)[0]["cached_tokens"] == len(PROMPT) - 1


@pytest.mark.parametrize("convert", [list, np.array, lambda ids: torch.tensor(ids)])
def test_token_ids_are_taken_as_they_are(llm: LLM, convert: object) -> None:
    ids = llm.tokenizer(PROMPT).input_ids
    out = llm.generate(convert(ids), SHORT)  # type: ignore[operator]
    assert out[0]["token_ids"] == llm.generate([PROMPT], SHORT)[0]["token_ids"]


def test_the_joined_stream_is_the_output(llm: LLM) -> None:
    chunks = list(llm.generate([PROMPT, "other"], SHORT, stream=True))
    for index, out in enumerate(llm.generate([PROMPT, "other"], SHORT)):
        mine = [chunk for chunk in chunks if chunk["index"] == index]
        assert "".join(chunk["text"] for chunk in mine) == out["text"]
        assert [token for chunk in mine for token in chunk["token_ids"]] == out["token_ids"]
        assert [chunk["finish_reason"] for chunk in mine][-1] == "length"
        assert mine[-1]["output"]["token_ids"] == out["token_ids"]


def test_a_stop_string_cuts_text_and_tokens(llm: LLM) -> None:
    params = SamplingParams(max_tokens=40, ignore_eos=True)
    full = llm.generate(PROMPT, params)[0]
    stop = full["text"][6:9]
    cut = llm.generate(PROMPT, SamplingParams(max_tokens=40, ignore_eos=True, stop=stop))[0]
    assert cut["text"] == full["text"][: full["text"].index(stop)]
    assert cut["finish_reason"] == "stop"
    assert cut["token_ids"] == full["token_ids"][: len(cut["token_ids"])]
    assert stop in llm.tokenizer.decode(cut["token_ids"])
    assert stop not in llm.tokenizer.decode(cut["token_ids"][:-1])


def test_an_end_token_ends_and_is_not_shown(llm: LLM) -> None:
    full = llm.generate(PROMPT, SHORT)[0]["token_ids"]
    out = llm.generate(PROMPT, SamplingParams(max_tokens=8, stop_token_ids=[full[3]]))[0]
    kept = full[: full.index(full[3]) + 1]
    assert out["token_ids"] == kept
    assert out["finish_reason"] == "stop"
    assert out["text"] == llm.tokenizer.decode(kept[:-1], skip_special_tokens=True)


def test_n_choices_differ_and_their_prompt_is_computed_once(llm: LLM) -> None:
    params = SamplingParams(temperature=1.0, seed=7, n=4, max_tokens=8, ignore_eos=True)
    first, again = llm.generate(PROMPT, params)[0], llm.generate(PROMPT, params)[0]
    texts = [choice["token_ids"] for choice in first["choices"]]
    assert len(texts) == 4
    assert len({tuple(ids) for ids in texts}) > 1
    assert texts == [choice["token_ids"] for choice in again["choices"]]
    assert [choice["cached_tokens"] for choice in first["choices"]] == [0, *[len(PROMPT) - 1] * 3]
    assert first["token_ids"] == texts[0]


def test_a_seed_gives_the_same_text_alone_and_in_company(llm: LLM) -> None:
    params = SamplingParams(temperature=1.0, seed=11, max_tokens=10, ignore_eos=True)
    alone = llm.generate(PROMPT, params)[0]["token_ids"]
    others = [SamplingParams(temperature=1.5, max_tokens=k, ignore_eos=True, top_k=5) for k in (3, 9, 12)]
    together = llm.generate(["a", "bc", "def", PROMPT], [*others, params])
    assert together[3]["token_ids"] == alone


def test_without_a_seed_texts_differ(llm: LLM) -> None:
    params = SamplingParams(temperature=1.2, max_tokens=12, ignore_eos=True)
    assert len({tuple(llm.generate(PROMPT, params)[0]["token_ids"]) for _ in range(5)}) > 1


def test_a_shared_params_object_is_not_changed(llm: LLM) -> None:
    params = SamplingParams(max_tokens=10_000)
    before = params.__dict__.copy()
    llm.generate([PROMPT, "x"], params)
    assert params.__dict__ == before


def test_logprobs_come_with_every_token(llm: LLM) -> None:
    out = llm.generate(PROMPT, SamplingParams(max_tokens=5, logprobs=3, ignore_eos=True))[0]
    assert [entry.token_id for entry in out["logprobs"]] == out["token_ids"]
    for entry in out["logprobs"]:
        assert len(entry.top) == 3
        assert entry.logprob == entry.top[0][1] <= 0  # greedy: the chosen one is the best


@pytest.mark.parametrize("chunk", [4, 1000])
def test_prompt_logprobs_are_the_same_cold_warm_and_in_chunks(tiny: Path, chunk: int) -> None:
    params = SamplingParams(max_tokens=1, prompt_logprobs=2, ignore_eos=True)
    with LLM(str(tiny), num_page_override=256, max_extend_tokens=chunk) as llm:
        cold, warm = (llm.generate(PROMPT, params)[0] for _ in range(2))
        ids = llm.tokenizer(PROMPT).input_ids
    assert cold["prompt_logprobs"][0] is None
    assert [entry.token_id for entry in cold["prompt_logprobs"][1:]] == ids[1:]
    assert warm["cached_tokens"] == 0
    for a, b in zip(cold["prompt_logprobs"][1:], warm["prompt_logprobs"][1:], strict=True):
        assert a.logprob == pytest.approx(b.logprob, abs=1e-4)
        assert [token for token, _ in a.top] == [token for token, _ in b.top]


def test_max_tokens_zero_gives_only_the_prompts_logprobs(llm: LLM) -> None:
    out = llm.generate(PROMPT, SamplingParams(max_tokens=0, prompt_logprobs=0))[0]
    assert out["token_ids"] == []
    assert out["text"] == ""
    assert len(out["prompt_logprobs"]) == len(PROMPT)


def test_max_tokens_zero_caches_the_prompt(llm: LLM) -> None:
    for out in (
        llm.generate(PROMPT, SamplingParams(max_tokens=0))[0],
        llm.generate(PROMPT, SamplingParams(max_tokens=0))[0],
    ):
        assert (out["text"], out["token_ids"], out["finish_reason"]) == ("", [], "length")
        assert out["timings"]["first_token_s"] is None
    assert out["cached_tokens"] == len(PROMPT) - 1
    (delta,) = llm.generate(PROMPT, SamplingParams(max_tokens=0, n=1), stream=True)
    assert (delta["text"], delta["token_ids"], delta["finish_reason"]) == ("", [], "length")
    assert llm.generate(PROMPT, SHORT)[0]["cached_tokens"] == len(PROMPT) - 1
    with pytest.raises(ValueError, match="max_tokens=-1"):
        SamplingParams(max_tokens=-1)


def test_chat_uses_the_template(llm: LLM) -> None:
    out = llm.chat([{"role": "user", "content": "hi"}], SHORT)
    assert out["prompt_tokens"] == len(llm.tokenizer("<s>user: hi</s><s>").input_ids)
    streamed = list(llm.chat([{"role": "user", "content": "hi"}], SHORT, stream=True))
    assert "".join(chunk["text"] for chunk in streamed) == out["text"]


def test_several_chats_are_answered_in_their_order(llm: LLM) -> None:
    chats = [[{"role": "user", "content": f"hi {i}"}] for i in range(3)]
    alone = [llm.chat(chat, SHORT) for chat in chats]
    together = llm.chat(chats, SHORT)
    assert [out["token_ids"] for out in together] == [out["token_ids"] for out in alone]
    each = [SamplingParams(max_tokens=n, ignore_eos=True) for n in (1, 2, 3)]
    assert [len(out["token_ids"]) for out in llm.chat(tuple(chats), each, use_tqdm=False)] == [1, 2, 3]
    assert [out["prompt_tokens"] for out in llm.chat(chats[:1], SHORT)] == [alone[0]["prompt_tokens"]]
    deltas = list(llm.chat(chats, SHORT, stream=True))
    for index, out in enumerate(alone):
        assert "".join(delta["text"] for delta in deltas if delta["index"] == index) == out["text"]


@pytest.mark.parametrize(
    ("messages", "params", "message"),
    [
        ([[{"role": "user", "content": "a"}], []], None, "conversation 1: messages is empty"),
        ([[{"role": "user", "content": "a"}], [{"role": "user"}]], None, r"conversation 1: messages\[0\].content"),
        (
            [[{"role": "user", "content": "a"}], {"role": "user", "content": "a"}],
            None,
            "conversation 1: messages must be",
        ),
        ([[{"role": "user", "content": "a"}]] * 3, [SHORT], "1 sampling_params were given for 3 prompts"),
        ([{"role": "user", "content": "a"}], [SHORT, SHORT], "2 sampling_params were given for 1 prompts"),
        ([], None, "messages is empty"),
        ("hi", None, "messages must be a list"),
    ],
)
def test_wrong_chats_are_refused_before_anything_runs(llm: LLM, messages: object, params: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        llm.chat(messages, params)  # type: ignore[call-overload]
    assert llm.stats()["prompts"] == 0


HI = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        (
            {"max_tokens": 3},
            r"max_tokens is a field of SamplingParams: chat\(messages, SamplingParams\(max_tokens=\.\.\.\)\)",
        ),
        ({"stop": "x"}, "stop is a field of SamplingParams"),
        ({"temprature": 1}, "'temprature'.*did you mean 'temperature', a field of SamplingParams"),
        ({"cache_slat": "x"}, "'cache_slat'.*did you mean 'cache_salt'"),
        ({"enable_thinking": False}, "unknown keyword 'enable_thinking'; variables of the chat template: none"),
        ({"chat_template_kwargs": {}}, "chat_template_kwargs is template={...} here"),
        ({"tools": [TOOL]}, "reads no tools"),
        ({"template": "x"}, "not a mapping"),
        ({"template": {"tools": [TOOL]}}, "not a chat template variable: tools"),
    ],
)
def test_an_unknown_keyword_of_a_chat_is_a_type_error(llm: LLM, keywords: dict[str, object], message: str) -> None:
    for call in (llm.chat, llm.probe_chat, llm.explain_chat):
        with pytest.raises(TypeError, match=message):
            call(HI, **keywords)  # type: ignore[operator]
    assert llm.stats()["prompts"] == 0


def test_variables_of_the_template_reach_it(llm: LLM) -> None:
    plain = llm.chat(HI, SHORT)["prompt_tokens"]
    assert llm.chat(HI, SHORT, tools=None, documents=[], template={"enable_thinking": False})["prompt_tokens"] == plain
    llm.tokenizer.chat_template = (
        "{{ messages[0].content }}{{ mood }}{% if tools %}{{ tools[0].function.name }}{% endif %}"
    )
    assert llm.chat(HI, SHORT, mood="!!!")["prompt_tokens"] == len("hi!!!")
    assert llm.chat(HI, SHORT, template={"mood": "!!", "other": 1}, tools=[TOOL])["prompt_tokens"] == len("hi!!f")
    assert llm.chat([HI, HI], SHORT, mood="!")[1]["prompt_tokens"] == len("hi!")
    assert llm.chat(HI, SHORT, chat_template="{{ more }}{{ messages[0].content }}", more="12")["prompt_tokens"] == 4


IDS = [[72, 101, 108], [72, 105, 2]]


@pytest.mark.parametrize(
    "one",
    [
        {"input_ids": IDS[0]},
        {"input_ids": IDS[0], "attention_mask": [1, 1, 1], "token_type_ids": [0, 0, 0]},
        {"input_ids": [0, *IDS[0]], "attention_mask": [0, 1, 1, 1]},
        {"input_ids": torch.tensor([IDS[0]]), "attention_mask": torch.ones(1, 3, dtype=torch.int64)},
        {"input_ids": np.array([[*IDS[0], 9, 9]]), "attention_mask": np.array([[1, 1, 1, 0, 0]])},
        BatchEncoding({"input_ids": [IDS[0]]}),
        torch.tensor(IDS[0]),
        torch.tensor([IDS[0]]),
        np.array([IDS[0]], np.uint16),
        tuple(IDS[0]),
        list(torch.tensor(IDS[0])),
    ],
    ids=repr,
)
def test_what_a_tokenizer_gives_is_a_prompt(llm: LLM, one: object) -> None:
    wanted = llm.generate([IDS[0], IDS[1]], SHORT)
    (out,) = llm.generate(one, SHORT)  # type: ignore[call-overload]
    assert out["token_ids"] == wanted[0]["token_ids"]
    assert out["prompt_tokens"] == 3
    outs = llm.generate([one, IDS[1], "abc"], SHORT)  # type: ignore[list-item]
    assert [each["token_ids"] for each in outs[:2]] == [each["token_ids"] for each in wanted]
    assert llm.probe(one) == (3, 2)  # type: ignore[arg-type]
    assert llm.explain(one).explanation.hit == 2  # type: ignore[arg-type]


@pytest.mark.parametrize("tensors", [None, "pt", "np"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_of_a_batch_is_left_out(llm: LLM, tensors: str | None, side: str) -> None:
    tokenizer = llm.tokenizer
    tokenizer.pad_token, tokenizer.padding_side = "</s>", side
    chats = [[{"role": "user", "content": text}] for text in ("a", "a longer one")]
    made = tokenizer.apply_chat_template(
        chats, add_generation_prompt=True, padding=True, return_dict=True, return_tensors=tensors
    )
    assert len(made["input_ids"][0]) == len(made["input_ids"][1])
    outs = llm.generate(made, SHORT)
    assert [out["prompt_tokens"] for out in outs] == [out["prompt_tokens"] for out in llm.chat(chats, SHORT)]
    assert [out["token_ids"] for out in outs] == [out["token_ids"] for out in llm.chat(chats, SHORT)]


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        (torch.tensor([1.0, 2.0]), r"token ids, not shape \[2\], dtype torch.float32"),
        (np.array([[1.0, 2.0]]), "token ids, not .*float64"),
        (torch.tensor([1, 2], dtype=torch.bfloat16), "token ids, not .*bfloat16"),
        (torch.tensor([True]), "token ids, not .*bool"),
        (torch.tensor(5), r"shape \[n\], or \[b, n\] for b prompts, not \[\]"),
        (torch.ones(1, 1, 2, dtype=torch.int64), r"shape \[n\], or \[b, n\] for b prompts, not \[1, 1, 2\]"),
        (torch.tensor(IDS), r"one array of shape \[2, 3\] may hold padding.*attention_mask"),
        ({"input_ids": np.array(IDS)}, r"one array of shape \[2, 3\] may hold padding"),
        (torch.ones(3, dtype=torch.int64, device="meta"), r"token ids, not shape \[3\], dtype torch.int64"),
        (torch.tensor([]), "empty prompt"),
        (torch.empty(1, 0, dtype=torch.int64), "empty prompt"),
        ({"input_ids": []}, "empty prompt"),
        ({"input_ids": IDS[0], "attention_mask": [0, 0, 0]}, "empty prompt"),
        ({"input_ids": IDS[0], "attention_mask": [1, 1]}, r"attention_mask has shape \[2\], the input_ids \[3\]"),
        ({"input_ids": IDS, "attention_mask": [[1, 1, 1]]}, "not as many rows"),
        ({"input_ids": None}, "not NoneType"),
        ({"input_ids": "abc"}, "not str"),
        ({"prompt_token_ids": IDS[0]}, "a dict with input_ids, not one with 'prompt_token_ids'"),
        (["ok", torch.tensor(IDS)], "prompt 1: .*may hold padding"),
        (["ok", {"input_ids": IDS}], "prompt 1: this is 2 prompts, where one is expected"),
        ([[IDS[0]]], "a flat list of token ids"),
    ],
    ids=repr,
)
def test_what_is_no_prompt_is_refused_with_its_shape(llm: LLM, prompts: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        llm.generate(prompts)  # type: ignore[call-overload]
    assert llm.stats()["prompts"] == 0


def test_closing_a_stream_aborts_its_requests(llm: LLM) -> None:
    chunks = llm.generate([PROMPT] * 3, SamplingParams(max_tokens=400, ignore_eos=True), stream=True)
    next(chunks)
    chunks.close()
    assert llm.cache_manager.num_free_pages + llm.stats()["evictable_tokens"] == 2048
    assert llm.stats()["protected_tokens"] == 0


def test_threads_share_one_llm(llm: LLM) -> None:
    wanted = [llm.generate(f"prompt {i}", SHORT)[0]["token_ids"] for i in range(6)]
    got: dict[int, list[int]] = {}

    def ask(i: int) -> None:
        got[i] = llm.generate(f"prompt {i}", SHORT)[0]["token_ids"]

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [got[i] for i in range(6)] == wanted


def test_several_llms_live_in_one_process(tiny: Path) -> None:
    with LLM(str(tiny), num_page_override=64) as one, LLM(str(tiny), num_page_override=64, page_size=4) as other:
        assert one.generate(PROMPT, SHORT)[0]["token_ids"] == other.generate(PROMPT, SHORT)[0]["token_ids"]


def test_an_llm_that_was_shut_down_holds_neither_model_nor_pool_nor_page_table(tiny: Path) -> None:
    with LLM(str(tiny), num_page_override=64) as llm:
        llm.generate(PROMPT, SHORT)
        engine = llm._parts.engine
        held = [weakref.ref(part) for part in (engine.model, engine.kv_pool, engine.page_table)]
    gc.collect()
    assert [ref() for ref in held] == [None, None, None]
    assert llm.stats()["num_batches"] > 0


def test_every_batch_passes_through_the_instance(llm: LLM) -> None:
    seen = []
    original = llm._forward

    def spy(forward_input: ForwardInput) -> BatchOutput:
        batch = forward_input.batch
        seen.append((batch.is_prefill, [req.extend_len for req in batch.reqs]))
        return original(forward_input)

    llm._forward = spy  # type: ignore[method-assign]
    llm.generate([PROMPT], SamplingParams(max_tokens=3, ignore_eos=True))
    assert seen == [(True, [len(PROMPT)]), (False, [1]), (False, [1])]


def test_when_the_engine_dies_readers_are_told(tiny: Path) -> None:
    llm = LLM(str(tiny), num_page_override=64)

    def fail(_: ForwardInput) -> BatchOutput:
        raise RuntimeError("the device is gone")

    llm._forward = fail  # type: ignore[method-assign]
    with pytest.raises(EngineDied, match="the device is gone"):
        llm.generate(PROMPT, SHORT)
    with pytest.raises(EngineDied, match="the device is gone"):
        llm.generate(PROMPT, SHORT)
    llm.shutdown()


def test_running_out_of_memory_fails_one_batch_only(llm: LLM) -> None:
    engine = llm._parts.engine
    compute = engine._forward

    def run_out(*_: object) -> BatchOutput:
        engine._forward = compute  # type: ignore[method-assign]
        raise torch.OutOfMemoryError("no memory")

    engine._forward = run_out  # type: ignore[method-assign]
    failed = llm.generate(PROMPT, SHORT)[0]
    assert failed["finish_reason"] == "error"
    assert "memory" in failed["error"]
    assert llm.generate(PROMPT, SHORT)[0]["finish_reason"] == "length"


def test_memory_that_a_cpu_cannot_allocate_fails_one_batch_only(llm: LLM) -> None:
    """torch raises a plain RuntimeError for it."""
    engine = llm._parts.engine
    compute = engine._forward

    def run_out(*_: object) -> BatchOutput:
        engine._forward = compute  # type: ignore[method-assign]
        return torch.empty(1 << 60)  # type: ignore[return-value]

    engine._forward = run_out  # type: ignore[method-assign]
    assert llm.generate(PROMPT, SHORT)[0]["finish_reason"] == "error"
    assert llm.generate(PROMPT, SHORT)[0]["finish_reason"] == "length"


def test_a_stream_keeps_its_llm(tiny: Path) -> None:
    chunks = LLM(str(tiny), num_page_override=64).generate(PROMPT, SHORT, stream=True)
    gc.collect()
    assert len(list(chunks)) == 8


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # Python 3.12 warns of what this is about
def test_an_llm_does_not_hang_after_a_fork(llm: LLM) -> None:
    """Its thread is not there in the child; the child says so instead of waiting for it."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            llm.generate(PROMPT, SHORT)
        except RuntimeError as error:
            os.write(write_end, str(error).encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        assert "does not survive a fork" in pipe.read()
    os.waitpid(child, 0)


def test_shutdown_in_the_workers_own_thread_ends_it(tiny: Path) -> None:
    """So it is when the last reference goes in a collection there."""
    llm = LLM(str(tiny), num_page_override=64)
    llm._worker.call(llm.shutdown)
    llm._worker._thread.join(timeout=60)
    assert not llm._worker._thread.is_alive()


def test_a_pool_larger_than_memory_is_refused(tiny: Path) -> None:
    with pytest.raises(ValueError, match=r"num_pages=1000000000 take .* are available"):
        LLM(str(tiny), num_page_override=1_000_000_000)


@pytest.mark.parametrize(
    ("prompts", "params", "message"),
    [
        (["a"], {"temperature": 1.0}, "sampling_params are SamplingParams"),
        ({"a": 1}, None, "prompts are texts or token ids"),
        (iter(["a"]), None, "prompts are texts or token ids"),
        ([b"bytes"], None, "a prompt is a text or"),
        (3, None, "prompts are texts or token ids"),
    ],
)
def test_wrong_types_are_refused_by_name(llm: LLM, prompts: object, params: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        llm.generate(prompts, params)  # type: ignore[call-overload]


def test_after_shutdown_generate_says_so(tiny: Path) -> None:
    llm = LLM(str(tiny), num_page_override=64)
    llm.shutdown()
    llm.shutdown()
    with pytest.raises(EngineDied, match="shut down"):
        llm.generate(PROMPT, SHORT)


def test_a_forgotten_llm_ends_its_thread(tiny: Path) -> None:
    llm = LLM(str(tiny), num_page_override=64)
    thread = llm._worker._thread
    del llm
    gc.collect()
    deadline = time.monotonic() + 60
    while thread.is_alive() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not thread.is_alive()


def test_the_environment_turns_overlap_off(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ENV.DISABLE_OVERLAP_SCHEDULING, "value", True)
    with LLM(str(tiny), num_page_override=64, overlap="on") as llm:
        assert not llm._parts.overlap


def test_the_tree_is_drawn(llm: LLM) -> None:
    assert llm.tree() == "the cache is empty"
    llm.generate([PROMPT], SamplingParams(max_tokens=1))
    assert llm.tree() == f"└─ {len(PROMPT)} tokens, 0 locks: '{PROMPT}'"
    stats = llm.stats()
    assert (stats["prompt_tokens"], stats["computed_tokens"], stats["evictable_tokens"]) == (len(PROMPT),) * 3


def test_dummy_weights_need_only_a_config(tiny: Path, tmp_path: Path) -> None:
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((tiny / name).read_bytes())
    with LLM(str(tmp_path), load_format="dummy", num_page_override=64) as llm:
        assert len(llm.generate(PROMPT, SHORT)[0]["token_ids"]) == 8


@pytest.mark.parametrize(
    ("prompt", "params", "message"),
    [
        ("", {}, "empty prompt"),
        ([], {}, None),
        ([[]], {}, "empty prompt"),
        ([[300]], {}, "300 .*vocabulary of 300"),
        ([[-1]], {}, "-1 .*vocabulary"),
        ([[1.5]], {}, "token ids"),
        ([[True]], {}, "token ids"),
        ([[2**40]], {}, "no vocabulary is so large"),
        ([[1] * 600], {}, "600 tokens.* context length is 512"),
        ([[1] * 512], {}, "512 tokens.* context length is 512"),
        (["ok"], {"stop_token_ids": [300]}, "300"),
        (["ok"], {"logit_bias": {300: 1.0}}, "300"),
    ],
)
def test_bad_prompts_are_refused_before_anything_runs(
    llm: LLM, prompt: object, params: dict[str, object], message: str | None
) -> None:
    if message is None:
        assert llm.generate(prompt) == []  # type: ignore[call-overload]
        return
    with pytest.raises(ValueError, match=message):
        llm.generate(prompt, SamplingParams(**params))  # type: ignore[arg-type, call-overload]
    assert llm.stats()["prompts"] == 0
    assert llm.generate("ok", SHORT)[0]["finish_reason"] == "length"


def test_a_prompt_over_the_pool_is_refused_with_both_numbers(tiny: Path) -> None:
    with LLM(str(tiny), num_page_override=64) as llm, pytest.raises(ValueError, match=r"100 tokens.* only 64"):
        llm.generate([[1] * 100])


def test_one_bad_prompt_of_many_refuses_all(llm: LLM) -> None:
    with pytest.raises(ValueError, match="empty prompt"):
        llm.generate(["fine", ""])
    with pytest.raises(ValueError, match="2 sampling_params were given for 3 prompts"):
        llm.generate(["a", "b", "c"], [SHORT, SHORT])


@pytest.mark.parametrize(
    ("prompts", "use_tqdm", "shown"),
    [(["a", "b"], None, True), (["a"], None, False), (["a", "b"], False, False), (["a"], True, True)],
)
def test_a_bar_counts_prompts_on_a_terminal(llm: LLM, prompts: list[str], use_tqdm: bool | None, shown: bool) -> None:
    with impatient_terminal() as screen:
        llm.generate(prompts, SHORT, use_tqdm=use_tqdm)
    assert ("generating" in screen.getvalue()) == shown


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        ({"page_size": 0}, ValueError, "page_size=0"),
        ({"num_page_override": 0}, ValueError, "num_page_override=0"),
        ({"dtype": "int8"}, ValueError, "dtype='int8'.*float32"),
        ({"device": "tpu"}, ValueError, "device='tpu'"),
        ({"memory_ratio": 0.0}, ValueError, "memory_ratio"),
        ({"tensor_parallel_size": 0}, ValueError, "tensor_parallel_size=0"),
        ({"tensor_parallel_size": 3}, ValueError, "tensor_parallel_size=3 does not divide num_qo_heads=4"),
        ({"tensor_parallel_size": 4}, ValueError, "tensor_parallel_size=4 does not divide num_kv_heads=2"),
        ({"max_seq_len_override": 1000}, ValueError, "1000.*512"),
        ({"cache_type": "tree"}, ValueError, "cache_type='tree'.*radix"),
        ({"pagesize": 1}, TypeError, "pagesize; did you mean page_size"),
        ({"max_extend_tokens": 0}, ValueError, "max_extend_tokens=0"),
    ],
)
def test_bad_config_is_refused_by_name(
    tiny: Path, config: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        LLM(str(tiny), **config)


def test_an_unknown_model_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="no-such-model"):
        LLM("no-such-model")

"""The chapter's end-to-end test, unchanged, with the helpers it calls; and its example program, whole."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support.qwen3 import make_qwen3
from transformers import AutoTokenizer, Qwen3ForCausalLM

from minisgl.core import SamplingParams
from minisgl.env import ENV
from minisgl.llm import LLM

EXAMPLE = Path(__file__).parents[2] / "examples/ch09_radix.py"
PROMPTS = [
    "The capital of France is",
    "The capital of France is a city that",
    "Once upon a time, in a land far away, there lived a king who had three daughters",
    "def quicksort(numbers):",
    "Hello",
]
QWEN3 = ""  # set by the fixture: the folder of the model


@pytest.fixture(scope="module", autouse=True)
def _qwen3(tmp_path_factory):
    global QWEN3
    QWEN3 = str(make_qwen3(tmp_path_factory.mktemp("models") / "Qwen3-0.6B"))


@pytest.fixture(autouse=True)
def _overlap_as_it_was(monkeypatch):
    monkeypatch.setattr(ENV.DISABLE_OVERLAP_SCHEDULING, "value", ENV.DISABLE_OVERLAP_SCHEDULING.value)


def build_llm(path, **kwargs):
    return LLM(path, dtype=torch.float32, max_running_req=8, num_page_override=1024, max_seq_len_override=256, **kwargs)


def greedy(max_tokens):
    return SamplingParams(max_tokens=max_tokens, ignore_eos=True)


@torch.inference_mode()
def hf_greedy(path, prompts, max_tokens):
    tokenizer = AutoTokenizer.from_pretrained(path)
    model = Qwen3ForCausalLM.from_pretrained(path, dtype=torch.float32)
    outputs = []
    for prompt in prompts:
        ids = tokenizer(prompt).input_ids
        for _ in range(max_tokens):
            ids.append(int(model(torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
        outputs.append(ids[-max_tokens:])
    return outputs


def test_shared_prefixes_are_reused_and_outputs_unchanged():
    ENV.DISABLE_OVERLAP_SCHEDULING.value = True
    llm = build_llm(QWEN3, cache_type="radix")
    computed = []
    orig = llm._forward

    def spy(fi):
        if fi.batch.is_prefill:
            computed.append(sum(r.extend_len for r in fi.batch.reqs))
        return orig(fi)

    llm._forward = spy
    first = llm.generate(PROMPTS, greedy(6))
    cold = sum(computed)
    computed.clear()
    second = llm.generate(PROMPTS, greedy(6))  # the same prompts again: almost everything hits
    assert [o["token_ids"] for o in first] == [o["token_ids"] for o in second] == hf_greedy(QWEN3, PROMPTS, 6)
    assert sum(computed) == len(PROMPTS)  # each request only has to recompute its last token
    assert cold > 5 * len(PROMPTS)
    llm.cache_manager.check_integrity()
    llm.shutdown()


def test_the_example_program_prints_the_chapters_figures():
    """231 prompt tokens with Qwen3's tokenizer; 231 computed without the radix cache, 73 with it."""
    folder = Path(QWEN3).parent.parent / "run"
    folder.mkdir(exist_ok=True)
    if not (folder / "models").exists():
        (folder / "models").symlink_to(Path(QWEN3).parent)
    done = subprocess.run([sys.executable, str(EXAMPLE)], cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-2:] == [
        "naive: 231 prompt tokens in all, prefill actually computed 231",
        "radix: 231 prompt tokens in all, prefill actually computed 73",
    ]

"""Greedy answers of transformers to 48 prompts, with SmolLM2's own weights in float32.

`python tests/support/smollm2_reference.py` writes them to tests/data/smollm2_greedy.json; a test compares ours with
that file, another one, nightly, the file with transformers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[2]
PATH = ROOT / "tests/data/smollm2_greedy.json"
MAX_TOKENS = 24
END_TOKEN = 2

TEXTS = [
    "A",
    "The",
    "Hello",
    "The capital of France is",
    "The capital of France is a city that",
    "The alphabet is A, B, C,",
    "1 + 1 =",
    "Once upon a time, there was a little girl who",
    "def fibonacci(n):\n    ",
    "Water boils at a temperature of",
    "The quick brown fox jumps over the lazy dog. The quick brown fox",
    "List of planets: Mercury, Venus,",
    "Translate to French: Good morning ->",
    "한글 한글 한글",
    "世界, 你好!",
    "Emoji: 🦀🦀🦀",
    '{"name": "Ada", "age":',
    "SELECT name FROM users WHERE",
    "E = mc",
    "In 1969, humans first",
    "    indented text\n    and more",
    "<|im_start|>user\nWho wrote Hamlet?<|im_end|>\n<|im_start|>assistant\n",
]
QUESTIONS = [
    "What is the capital of Japan?",
    "Name a primary color.",
    "Write one sentence about the sea.",
    "What is 2 + 2?",
    "Why is the sky blue?",
    "Give me three fruits.",
    "Who was Albert Einstein?",
    "Spell cat.",
]
SYSTEM = "You are a pirate. Answer every question like a pirate."
LICENSE_LENGTHS = (50, 100, 200, 256, 400, 511, 700, 900, 1024, 1500)  # tokens


def make_prompts(tokenizer: Any) -> list[list[int]]:
    """Token ids: plain texts, chats with and without a system message, a chat of three turns, long texts."""
    chats: list[list[dict[str, str]]] = [[{"role": "user", "content": q}] for q in QUESTIONS]
    chats += [[{"role": "system", "content": SYSTEM}, {"role": "user", "content": q}] for q in QUESTIONS[:7]]
    chats.append(
        [
            {"role": "user", "content": QUESTIONS[0]},
            {"role": "assistant", "content": "The capital of Japan is Tokyo."},
            {"role": "user", "content": "And of Italy?"},
        ]
    )
    long_text = tokenizer((ROOT / "LICENSE").read_text()).input_ids
    return [
        *(tokenizer(text).input_ids for text in TEXTS),
        *(tokenizer(render(tokenizer, chat)).input_ids for chat in chats),
        *(long_text[:length] for length in LICENSE_LENGTHS),
    ]


def render(tokenizer: Any, chat: list[dict[str, str]]) -> str:
    text: str = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    return text


def load_transformers(gguf: Path) -> tuple[Any, Any]:
    """Tokenizer and float32 model, both out of the GGUF file by transformers alone."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    return AutoTokenizer.from_pretrained(**where), AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)


@torch.inference_mode()
def greedy(model: Any, ids: list[int], max_tokens: int = MAX_TOKENS) -> list[int]:
    """Up to the end token, which is included."""
    out = model.generate(
        torch.tensor([ids]),
        attention_mask=torch.ones(1, len(ids), dtype=torch.long),
        do_sample=False,
        max_new_tokens=max_tokens,
        eos_token_id=END_TOKEN,
        pad_token_id=END_TOKEN,
    )
    tokens: list[int] = out[0, len(ids) :].tolist()
    return tokens


def main() -> None:
    from minisgl.utils.model_store import resolve_model

    tokenizer, model = load_transformers(resolve_model("smollm2"))
    prompts = make_prompts(tokenizer)
    cases = [{"prompt": ids, "tokens": greedy(model, ids)} for ids in prompts]
    PATH.write_text("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")


if __name__ == "__main__":
    main()

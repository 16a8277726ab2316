"""A tiny random model in a folder, complete with tokenizer and chat template: what a test of the whole engine loads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

VOCAB = 300
BOS, EOS = 256, 257
SHAPE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.3,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "tie_word_embeddings": False,
}
TEMPLATE = (
    "{% for m in messages %}<s>{{ m.role }}: {{ m.content }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<s>{% endif %}"
)


def make_tiny_model(folder: Path, seed: int = 0, **config: Any) -> Path:
    """Write a two-layer Llama in float32, with grouped heads and a byte tokenizer, to `folder`."""
    torch.manual_seed(seed)
    LlamaForCausalLM(LlamaConfig(**{**SHAPE, **config})).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


def make_tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte, then <s> and </s>; ids above have no text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken("<s>", special=True), AddedToken("</s>", special=True)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def hf_greedy(folder: Path, prompts: list[list[int]], max_tokens: int) -> list[list[int]]:
    """Greedy tokens of transformers with the same weights, one prompt at a time, end tokens ignored."""
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return [_greedy(model, ids, max_tokens) for ids in prompts]


@torch.inference_mode()
def _greedy(model: Any, ids: list[int], max_tokens: int) -> list[int]:
    """No KV cache: the reference computes everything anew."""
    text = list(ids)
    for _ in range(max_tokens):
        text.append(int(model(torch.tensor([text]), use_cache=False).logits[0, -1].argmax()))
    return text[len(ids) :]

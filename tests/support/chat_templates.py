"""Chat templates of model families, without what is about tools and dates, and the tokens that they need."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import minisgl.tokenizer

_CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_LLAMA3 = (
    "{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n'"
    " + m.content | trim + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
_MISTRAL = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
    "{% if m.role == 'user' %}{{ '[INST] ' + m.content + ' [/INST]' }}"
    "{% else %}{{ ' ' + m.content + ' ' + eos_token }}{% endif %}{% endfor %}"
)
_GEMMA = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}{% set role = 'model' if m.role == 'assistant' else m.role %}"
    "{{ '<start_of_turn>' + role + '\n' + m.content | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
_PHI3 = (
    "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}"
)
_PHI4 = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '<|im_sep|>' + m.content + '<|im_end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant<|im_sep|>' }}{% endif %}"
)
_OLMO2 = (
    "{{ bos_token }}{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content }}"
    "{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)
_GPT_OSS = (
    "{% for m in messages %}{% if m.role == 'user' %}{{ '<|start|>user<|message|>' + m.content + '<|end|>' }}"
    "{% else %}{{ '<|start|>assistant<|channel|>final<|message|>' + m.content }}"
    "{{ '<|return|>' if loop.last and not add_generation_prompt else '<|end|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}"
)
# Family -> template, its special tokens of which the first two are BOS and EOS, and what ends a turn.
FAMILIES: dict[str, tuple[str, tuple[str, ...], str]] = {
    "ChatML (SmolLM, Qwen)": (_CHATML, ("<|endoftext|>", "<|endoftext|>", "<|im_start|>", "<|im_end|>"), "<|im_end|>"),
    "Llama 3": (
        _LLAMA3,
        ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        "<|eot_id|>",
    ),
    "Mistral, Mixtral, Llama 2": (_MISTRAL, ("<s>", "</s>", "[INST]", "[/INST]"), "</s>"),
    "Gemma": (_GEMMA, ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"), "<end_of_turn>"),
    "Phi-3": (_PHI3, ("<s>", "<|endoftext|>", "<|user|>", "<|assistant|>", "<|end|>"), "<|end|>"),
    "Phi-4": (
        _PHI4,
        ("<|endoftext|>", "<|endoftext|>", "<|im_start|>", "<|im_sep|>", "<|im_end|>"),
        "<|im_end|>",
    ),
    "OLMo 2": (_OLMO2, ("<|endoftext|>", "<|endoftext|>"), "<|endoftext|>"),
    "GPT-OSS": (
        _GPT_OSS,
        ("<|startoftext|>", "<|endoftext|>", "<|start|>", "<|message|>", "<|channel|>", "<|end|>", "<|return|>"),
        "<|return|>",
    ),
}


def make_hf_tokenizer(template: str | None, special: Sequence[str]) -> PreTrainedTokenizerFast:
    """A byte tokenizer with these tokens; the first is BOS, the second EOS."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(token, special=True) for token in dict.fromkeys(special)])
    hf = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token=special[0], eos_token=special[1])
    hf.chat_template = template
    return hf


def make_tokenizer(template: str | None, special: Sequence[str]) -> minisgl.tokenizer.Tokenizer:
    return minisgl.tokenizer.Tokenizer(make_hf_tokenizer(template, special))

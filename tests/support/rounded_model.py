"""Random models whose weights are bfloat16 numbers, and what transformers makes of the same numbers in float32.

Heads are as wide as real ones (64, 128 and 256), and the scores of attention spread by about 1, so that it is neither
even nor one-hot: one wrong key shows, and rounding is not blown up.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from support.mxfp4 import put_experts_in_mxfp4
from support.tiny_model import make_tokenizer
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GptOssConfig,
    GptOssForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Mxfp4Config,
    Qwen3Config,
    Qwen3ForCausalLM,
)

VOCAB = 512
MAX_POSITIONS = 8192
WIDE_HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 256, "query_pre_attn_scalar": 256}
SHAPE = {
    "vocab_size": VOCAB,
    "hidden_size": 256,
    "intermediate_size": 384,
    "num_hidden_layers": 2,
    "max_position_embeddings": MAX_POSITIONS,
    "initializer_range": 0.07,
    "bos_token_id": 256,
    "eos_token_id": 257,
}


def make_llama_64(folder: Path) -> Path:
    """Four heads of 64, two a KV head."""
    torch.manual_seed(0)
    return _save(LlamaForCausalLM(LlamaConfig(**SHAPE, num_attention_heads=4, num_key_value_heads=2)), folder)


def make_qwen3_128(folder: Path) -> Path:
    """Eight heads of 128, four a KV head, each normalised."""
    torch.manual_seed(0)
    config = Qwen3Config(
        **SHAPE, num_attention_heads=8, num_key_value_heads=2, head_dim=128, tie_word_embeddings=True, rope_theta=1e6
    )
    return _save(Qwen3ForCausalLM(config), folder)


def make_qwen3_windows_128(folder: Path) -> Path:
    """The same, but the second layer sees 100 tokens; the first one sees all."""
    torch.manual_seed(0)
    windows = {"use_sliding_window": True, "sliding_window": 100, "max_window_layers": 1}
    config = Qwen3Config(**SHAPE, **windows, num_attention_heads=8, num_key_value_heads=2, head_dim=128, rope_theta=1e6)
    return _save(Qwen3ForCausalLM(config), folder)


def make_gemma2_windows_256(folder: Path) -> Path:
    """Four heads of 256, two a KV head; the first layer sees 100 tokens. Caps are so low that they bend much."""
    torch.manual_seed(0)
    caps = {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 6.0}
    config = Gemma2Config(**SHAPE, **WIDE_HEADS, **caps, sliding_window=100, tie_word_embeddings=False)
    return _save(_with_strong_attention(Gemma2ForCausalLM(config), head=1.5), folder)


def make_gemma3_windows_256(folder: Path) -> Path:
    """The same without caps, but with heads that are normalised, and with another rotation in the first layer."""
    torch.manual_seed(0)
    layers = ["sliding_attention", "full_attention"]
    config = Gemma3TextConfig(**SHAPE, **WIDE_HEADS, sliding_window=100, layer_types=layers, tie_word_embeddings=False)
    return _save(_with_strong_attention(Gemma3ForCausalLM(config), head=1.45), folder)


def make_gpt_oss_mxfp4_windows_64(folder: Path) -> Path:
    """Heads and windows of Llama and Gemma 2 above, sinks, and experts in MXFP4. All four are asked for each token, or
    rounding would choose other ones."""
    torch.manual_seed(0)
    experts = {"intermediate_size": 64, "num_local_experts": 4, "num_experts_per_tok": 4}
    rope = {"rope_type": "default", "rope_theta": 1e5}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "sliding_window": 100}
    model = GptOssForCausalLM(GptOssConfig(**SHAPE | experts, **heads, rope_parameters=rope))
    for layer in model.model.layers:
        layer.self_attn.sinks.data.normal_(mean=4.0)  # of the weight of 50 keys or so
        layer.self_attn.q_proj.weight.data *= 0.7
        layer.self_attn.o_proj.weight.data *= 2.0
    model.lm_head.weight.data *= 1.4
    return put_experts_in_mxfp4(_save(model, folder, save_original_format=False), low=121, high=123)


MODELS = {
    "llama-64": make_llama_64,
    "qwen3-128": make_qwen3_128,
    "qwen3-windows-128": make_qwen3_windows_128,
    "gemma2-windows-256": make_gemma2_windows_256,
    "gemma3-windows-256": make_gemma3_windows_256,
    "gpt-oss-mxfp4-windows-64": make_gpt_oss_mxfp4_windows_64,
}
"""By name, the last part of which is the head dim."""


def _with_strong_attention(model: Any, head: float) -> Any:
    """What attention adds in each layer of a Gemma is four times what the MLP adds, and logits spread `head` times as
    much: a wrong key would drown otherwise."""
    for layer in model.model.layers:
        layer.post_attention_layernorm.weight.data.fill_(1.0)  # to which 1 is added
        layer.post_feedforward_layernorm.weight.data.fill_(-0.5)
    model.lm_head.weight.data *= head
    return model


def _save(model: Any, folder: Path, **options: Any) -> Path:
    for weight in model.parameters():
        weight.data = weight.data.bfloat16().float()
    model.save_pretrained(folder, **options)
    make_tokenizer().save_pretrained(folder)
    return folder


class Reference:
    """The model in float32 on the CPU, one whole sequence at a time, without a cache of keys and values.

    Attention is eager, for other kinds have overlooked soft-caps in some versions of transformers.
    has_sinks: whether those that it has count. changes: of its config.
    """

    def __init__(self, folder: Path, has_sinks: bool = True, **changes: Any) -> None:
        if "mxfp4" in (folder / "config.json").read_text():
            changes["quantization_config"] = Mxfp4Config(dequantize=True)
        self._model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", **changes
        )
        for name, weight in self._model.named_parameters():
            if name.endswith("sinks") and not has_sinks:
                weight.data.fill_(torch.finfo(weight.dtype).min)
        self._logits = cache(self._compute)

    def logits(self, ids: Sequence[int]) -> torch.Tensor:
        """[len(ids), V]; kept, as many runs ask for the same."""
        return self._logits(tuple(ids))

    @torch.inference_mode()
    def _compute(self, ids: tuple[int, ...]) -> torch.Tensor:
        return self._model(torch.tensor([ids]), use_cache=False).logits[0]

    def lag(self, prompt: Sequence[int], tokens: Sequence[int]) -> torch.Tensor:
        """[len(tokens)]: how far each generated token's logit is below the best, given the tokens before it.

        0 where it is the best one. Where two are as good as equal, either of them lags by next to nothing.
        """
        logits = self.logits([*prompt, *tokens[:-1]])[len(prompt) - 1 :]
        return logits.amax(-1) - logits[torch.arange(len(tokens)), torch.tensor(tokens)]

    def logprobs(self, ids: Sequence[int]) -> torch.Tensor:
        """[len(ids), V]: of the token that follows each."""
        return self.logits(ids).log_softmax(-1)

"""Metadata of GGUF files with tiny tokenizers, one of each kind."""

from __future__ import annotations

from typing import Any

from tokenizers.pre_tokenizers import ByteLevel

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6


def ggml(**values: Any) -> dict[str, Any]:
    """GGUF metadata with these keys under `tokenizer.ggml.`; None leaves a key out."""
    return {f"tokenizer.ggml.{key}": value for key, value in values.items() if value is not None}


def byte_level_metadata(**changes: Any) -> dict[str, Any]:
    """<s> 0, </s> 1, <note> 2, the 256 bytes, and a few merges, "he" to "Ġhello"."""
    merges = ["h e", "l l", "he ll", "hell o", "Ġ hello", "1 2"]
    joined = [merge.replace(" ", "") for merge in merges]
    tokens = ["<s>", "</s>", "<note>", *sorted(ByteLevel.alphabet()), *joined]
    types = [CONTROL, CONTROL, USER_DEFINED] + [NORMAL] * (256 + len(joined))
    values = {"model": "gpt2", "pre": "gpt-2", "tokens": tokens, "token_type": types, "merges": merges}
    return ggml(**{**values, "bos_token_id": 0, "eos_token_id": 1, **changes})


def sentencepiece_metadata(**changes: Any) -> dict[str, Any]:
    """<unk> 0, <s> 1, </s> 2, the 256 bytes, letters, and words whose score falls with their id."""
    words = ["▁", "a", "b", "c", "▁a", "ab", "▁b", "▁ab", "bc", "▁abc", "▁▁"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *words]
    types = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * len(words)
    scores = [0.0] * 259 + [-float(i) for i in range(len(words))]
    values = {"model": "llama", "tokens": tokens, "token_type": types, "scores": scores, "unknown_token_id": 0}
    return ggml(**{**values, "bos_token_id": 1, "eos_token_id": 2, **changes})

"""What a single token stands for, seen for itself."""

from __future__ import annotations

from minisgl.tokenizer.detokenize import byte_level_bytes
from minisgl.tokenizer.tokenizer import Tokenizer

_SPACE = "\u2581"  # sentencepiece's spelling of a space


class TokenBytes:
    """Token id -> the bytes that it adds to a text, special tokens included; b"" for ids outside the vocabulary."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._id_to_token = tokenizer.backend.id_to_token
        self._special_ids = tokenizer.special_ids
        self._is_byte_level = tokenizer.is_byte_level

    def __call__(self, token_id: int) -> bytes:
        token: str | None = self._id_to_token(token_id)
        if token is None:
            return b""
        if token_id in self._special_ids:
            return token.encode()
        if self._is_byte_level:
            return byte_level_bytes(token)
        if len(token) == 6 and token.startswith("<0x"):
            return bytes.fromhex(token[3:5])
        return token.replace(_SPACE, " ").encode()

"""Token ids to text, a few at a time, at a cost that does not grow with what came before."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

import tokenizers

from minisgl.tokenizer.tokenizer import Tokenizer


class IncrementalDetokenizer:
    """Gives the text of one request as its tokens come.

    The pushed texts and the flushed one, joined, are `tokenizer.decode_behind(context, all ids, skip_special_tokens)`.
    A character is given once, when its last byte has come; U+FFFD only where decoding everything has it too.
    context: see `Tokenizer.context`.
    """

    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool = True, context: Sequence[int] = ()) -> None:
        self._hidden = tokenizer.special_ids if skip_special_tokens else frozenset()
        backend = tokenizer.backend
        self._decoder: _Decoder = _Bytes(backend) if tokenizer.is_byte_level else _Window(tokenizer, context)

    def push(self, token_ids: Sequence[int]) -> str:
        """The text that is now certain; often "", when a character is not complete."""
        if not self._hidden.isdisjoint(token_ids):
            token_ids = [i for i in token_ids if i not in self._hidden]
        return self._decoder.push(token_ids)

    def flush(self) -> str:
        """The rest, once no token follows; "" if a character was not cut off."""
        return self._decoder.flush()


class _Decoder(Protocol):
    def push(self, token_ids: Sequence[int]) -> str: ...

    def flush(self) -> str: ...


class _Bytes:
    """Byte-level vocabularies: a token is bytes, and the text is their UTF-8."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._id_to_token = backend.id_to_token
        self._rest = b""  # of a character that is not complete

    def push(self, token_ids: Sequence[int]) -> str:
        data = self._rest + b"".join(map(byte_level_bytes, map(self._id_to_token, token_ids)))
        text, num_bytes = codecs.utf_8_decode(data, "replace", False)
        self._rest = data[num_bytes:]
        return text

    def flush(self) -> str:
        rest, self._rest = self._rest, b""
        return rest.decode("utf-8", "replace")


class _Window:
    """Other vocabularies: decodes the new tokens behind the last token that was given out.

    That one goes first so that the decoder strips no space in mid-text. A run of byte tokens (sentencepiece) waits
    for its end, since one bad byte turns the whole run into U+FFFD.
    """

    def __init__(self, tokenizer: Tokenizer, context: Sequence[int]) -> None:
        self._backend = tokenizer.backend
        self._byte_ids = tokenizer.byte_ids
        self._window = list(context)
        self._given = tokenizer.text_before(context)

    def push(self, token_ids: Sequence[int]) -> str:
        known = [i for i in token_ids if self._backend.id_to_token(i) is not None]
        self._window += known
        if not known or known[-1] in self._byte_ids:
            return ""
        text = self.flush()
        if text:
            self._window = self._window[-1:]
            self._given = self._decode()
        return text

    def flush(self) -> str:
        text = self._decode()[len(self._given) :]
        self._given += text
        return text

    def _decode(self) -> str:
        text: str = self._backend.decode(self._window, skip_special_tokens=False)
        return text


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's spelling of bytes: the printable ones of Latin-1 are themselves, the others U+0100 onwards."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + n): byte for n, byte in enumerate(others)}


_BYTE_OF = _byte_alphabet()


@lru_cache(maxsize=2**18)
def byte_level_bytes(token: str | None) -> bytes:
    """The bytes that a token stands for; an added token that is not in the byte alphabet stands for itself."""
    if token is None:
        return b""
    try:
        return bytes([_BYTE_OF[char] for char in token])
    except KeyError:
        return token.encode()

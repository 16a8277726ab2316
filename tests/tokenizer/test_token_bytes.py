from __future__ import annotations

from support.tiny_model import EOS, make_tokenizer
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models
from transformers import PreTrainedTokenizerFast

from minisgl.tokenizer import TokenBytes, Tokenizer


def test_byte_level_tokens_are_their_bytes() -> None:
    tokenizer = Tokenizer(make_tokenizer())
    bytes_of = TokenBytes(tokenizer)
    assert b"".join(map(bytes_of, tokenizer.encode("a 🦀\n").tolist())) == "a 🦀\n".encode()
    assert bytes_of(EOS) == b"</s>"
    assert bytes_of(999) == b""


def test_sentencepiece_tokens_have_spaces_and_bytes() -> None:
    backend = Backend(models.BPE({"\u2581Hi": 0, "<0xF0>": 1, "x": 2, "<0x": 3}, [], byte_fallback=True))
    backend.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    bytes_of = TokenBytes(Tokenizer(PreTrainedTokenizerFast(tokenizer_object=backend)))
    assert [bytes_of(token_id) for token_id in range(4)] == [b" Hi", b"\xf0", b"x", b"<0x"]

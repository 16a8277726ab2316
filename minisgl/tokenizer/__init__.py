"""Text to tokens and back: tokenizers, chat templates, incremental detokenization, stop strings."""

from minisgl.tokenizer.detokenize import IncrementalDetokenizer
from minisgl.tokenizer.end_tokens import end_token_ids
from minisgl.tokenizer.load import load_tokenizer
from minisgl.tokenizer.pieces import text_around, text_pieces
from minisgl.tokenizer.stop import StopStrings
from minisgl.tokenizer.stream import TextDelta, TextStream
from minisgl.tokenizer.token_bytes import TokenBytes
from minisgl.tokenizer.tokenizer import Tokenizer

__all__ = [
    "IncrementalDetokenizer",
    "StopStrings",
    "TextDelta",
    "TextStream",
    "TokenBytes",
    "Tokenizer",
    "end_token_ids",
    "load_tokenizer",
    "text_around",
    "text_pieces",
]

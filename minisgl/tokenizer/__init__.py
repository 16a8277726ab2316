"""Text to tokens and back: tokenizers, chat templates, incremental detokenization, stop strings."""

from minisgl.tokenizer.detokenize import IncrementalDetokenizer
from minisgl.tokenizer.load import load_tokenizer
from minisgl.tokenizer.stop import StopStrings
from minisgl.tokenizer.stream import TextDelta, TextStream
from minisgl.tokenizer.token_bytes import TokenBytes
from minisgl.tokenizer.tokenizer import Tokenizer
from minisgl.tokenizer.turn_end import turn_end_ids

__all__ = [
    "IncrementalDetokenizer",
    "StopStrings",
    "TextDelta",
    "TextStream",
    "TokenBytes",
    "Tokenizer",
    "load_tokenizer",
    "turn_end_ids",
]

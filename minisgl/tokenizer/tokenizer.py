"""`Tokenizer`: what the engine asks of a model's tokenizer, around the Hugging Face object that users see."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tokenizers

from minisgl.tokenizer.chat import render_chat
from minisgl.tokenizer.gguf_tokenizer import GGUFTokenizer
from minisgl.utils.arrays import Int32Array

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


class Tokenizer:
    """A model's tokenizer, safe between threads.

    vocab_size: added tokens included. special_ids: the ids that `decode` leaves out. longest_token: in characters.
    is_byte_level: tokens are bytes in GPT-2's spelling.
    """

    def __init__(self, source: PreTrainedTokenizerFast | GGUFTokenizer) -> None:
        self._source = source
        self.backend: tokenizers.Tokenizer = source.backend_tokenizer
        self.vocab_size: int = self.backend.get_vocab_size(with_added_tokens=True)
        self.longest_token = _longest_token(source)
        added = self.backend.get_added_tokens_decoder()
        self.special_ids = frozenset(token_id for token_id, token in added.items() if token.special)
        self.is_byte_level = _decoder_kinds(self.backend.decoder) == ["ByteLevel"]

    @property
    def hf(self) -> PreTrainedTokenizerFast:
        """The same as a Hugging Face object, as `hf(text).input_ids`; its chat template is heeded from now on.

        Of a GGUF file it is made when it is first asked for, because importing transformers takes a second.
        """
        if isinstance(self._source, GGUFTokenizer):
            self._source = self._source.to_hf()
        return self._source

    @property
    def eos_id(self) -> int | None:
        """Of the token that the files call EOS, if they name one and it exists."""
        eos = self._source.special_tokens_map.get("eos_token")
        return None if eos is None else self.backend.token_to_id(eos)

    def encode(self, text: str) -> Int32Array:
        """[N] int32: the ids of a plain prompt, with the tokens that the model wants around it (BOS, mostly).

        A special token written out in the text becomes its one id. N may be 0. Raises ValueError on a lone surrogate.
        """
        return self._ids(text, add_special_tokens=True)

    def apply_chat_template(
        self, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool = True, **kwargs: Any
    ) -> Int32Array:
        """[N] int32: the ids of a chat as the model's own template writes it; the template writes BOS, if any.

        messages: in OpenAI's form, see `chat.plain_messages`; they are not changed. kwargs: `tools`,
        `continue_final_message`, and variables of the template. Raises ValueError, naming messages[i] where it can,
        for messages that the template cannot take, and for a model without a template.
        """
        return self.encode_rendered(self.render(messages, add_generation_prompt, **kwargs))

    def render(self, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool = True, **kwargs: Any) -> str:
        """The text of which `apply_chat_template` makes ids; it may be much longer than the messages."""
        return render_chat(self._source, messages, add_generation_prompt=add_generation_prompt, **kwargs)

    def encode_rendered(self, text: str) -> Int32Array:
        """[N] int32: the ids of a text that a chat template has written, in which BOS stands already, if any."""
        return self._ids(text, add_special_tokens=False)

    def encode_prefix(self, text: str) -> Int32Array:
        """[N] int32: with what the ids of every plain prompt begin that begins with this text.

        Its last word, as the tokenizer tells words apart, is left out: it may be cut otherwise when the text goes on.
        ValueError for a text of one word.
        """
        return self._prefix_ids(text, add_special_tokens=True)

    def encode_rendered_prefix(self, text: str) -> Int32Array:
        """The same for the beginning of a text that a chat template has written."""
        return self._prefix_ids(text, add_special_tokens=False)

    def decode(self, token_ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """The text of these ids, its spaces as they are; ids outside the vocabulary have no text."""
        # A batch of one: it lets go of the interpreter lock, which `decode` keeps.
        texts: list[str] = self.backend.decode_batch([[int(i) for i in token_ids]], skip_special_tokens)
        return texts[0]

    def _ids(self, text: str, add_special_tokens: bool) -> Int32Array:
        _refuse_lone_surrogate(text)
        # A batch of one: it lets go of the interpreter lock, which `encode` keeps for seconds if the text is long.
        (encoding,) = self._plain_backend().encode_batch_fast([text], add_special_tokens=add_special_tokens)
        return np.array(encoding.ids, dtype=np.int32)

    def _prefix_ids(self, text: str, add_special_tokens: bool) -> Int32Array:
        _refuse_lone_surrogate(text)
        encoding = self._plain_backend().encode(text, add_special_tokens=add_special_tokens)
        words: list[int | None] = encoding.word_ids  # None for a token that was added around the text
        last = max((word for word in words if word is not None), default=0)
        if last == 0:
            raise ValueError(
                f"the text {text[:40]!r} is one word: its tokens may be others when it goes on; give a longer text, or"
                " token ids, which are taken as they are"
            )
        return np.array(encoding.ids[: words.index(last)], dtype=np.int32)

    def _plain_backend(self) -> tokenizers.Tokenizer:
        """One that cuts and pads nothing: a user's hf(text, truncation=True) leaves that on in `backend`.

        It is not turned off there, since another thread may be encoding with it.
        """
        backend = self.backend
        if backend.truncation is None and backend.padding is None and not backend.encode_special_tokens:
            return backend
        plain = tokenizers.Tokenizer.from_str(backend.to_str())
        plain.no_truncation()
        plain.no_padding()
        plain.encode_special_tokens = False
        return plain


def _longest_token(source: PreTrainedTokenizerFast | GGUFTokenizer) -> int:
    return source.longest_token if isinstance(source, GGUFTokenizer) else max(map(len, source.get_vocab()), default=1)


def _decoder_kinds(decoder: Any) -> list[str]:
    """The steps of a decoder, such as ["Replace", "ByteFallback", "Fuse", "Strip"]."""
    return _kinds(json.loads(decoder.__getstate__())) if decoder is not None else []


def _kinds(state: dict[str, Any]) -> list[str]:
    if state["type"] == "Sequence":
        return [kind for step in state["decoders"] for kind in _kinds(step)]
    return [state["type"]]


def _refuse_lone_surrogate(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        raise ValueError(f"text has the lone surrogate U+{code:04X} at character {error.start}") from None

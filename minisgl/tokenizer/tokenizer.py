"""`Tokenizer`: what the engine asks of a model's tokenizer, around the Hugging Face object that users see."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tokenizers

from minisgl.tokenizer.chat import chosen_template, plain_messages, render_chat, template_variables
from minisgl.tokenizer.conversation import Conversations
from minisgl.tokenizer.gguf_tokenizer import GGUFTokenizer
from minisgl.utils.arrays import Int32Array
from minisgl.utils.math import num_bytes

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_MAX_CONTEXT = 64  # tokens: a run of bytes as long is no text


class Tokenizer:
    """A model's tokenizer, safe between threads.

    vocab_size: added tokens included. special_ids: the ids that `decode` leaves out. longest_token: in bytes.
    is_byte_level: tokens are bytes in GPT-2's spelling. byte_ids: of sentencepiece's tokens for single bytes.
    """

    def __init__(self, source: PreTrainedTokenizerFast | GGUFTokenizer) -> None:
        self._source = source
        self.backend: tokenizers.Tokenizer = source.backend_tokenizer
        _encode_all(self.backend)  # files keep the truncation and padding that somebody trained with
        self._conversations = Conversations()
        self._plain: tokenizers.Tokenizer | None = None
        self.vocab_size: int = self.backend.get_vocab_size(with_added_tokens=True)
        added = self.backend.get_added_tokens_decoder()
        self.special_ids = frozenset(token_id for token_id, token in added.items() if token.special)
        self.is_byte_level = _decoder_kinds(self.backend.decoder) == ["ByteLevel"]
        self.longest_token = _longest_token(source, self.is_byte_level)
        self.byte_ids = frozenset(self.backend.token_to_id(f"<0x{byte:02X}>") for byte in range(256)) - {None}

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
        `continue_final_message` and others of `chat.render_chat`, and variables of the template; TypeError for a name
        that it does not read, unless in `template={...}`. Raises ValueError, naming messages[i] where it can, for
        messages that the template cannot take, and for a model without a template.
        """
        return self.encode_rendered(self.render(messages, add_generation_prompt, **kwargs))

    def render(self, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool = True, **kwargs: Any) -> str:
        """The text of which `apply_chat_template` makes ids; it may be much longer than the messages."""
        chat = plain_messages(messages)
        return render_chat(self._source, chat, add_generation_prompt=add_generation_prompt, **kwargs)

    def render_conversation(self, messages: Sequence[Mapping[str, Any]], **kwargs: Any) -> str:
        """Render the chat of a request: unknown roles become ones that the template knows.

        Raises FieldError naming messages[i] for text that the template would drop. See `Conversations`.
        """
        return self._conversations.render(self._source, messages, **{"add_generation_prompt": True, **kwargs})

    def template_variables(self, chat_template: str | None = None, has_tools: bool = False) -> frozenset[str] | None:
        """Names of the variables that the chat template reads; None for one that cannot be compiled.

        chat_template: as for `render`. ValueError for a model without a template.
        """
        return template_variables(chosen_template(self._source.chat_template, chat_template, has_tools))

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

    def context(self, prompt_ids: Int32Array, skip_special_tokens: bool = True) -> list[int]:
        """The end of a prompt that the text of an answer to it depends on, for `decode_behind`.

        Decoders of the sentencepiece kind strip the space of the very first token, which an answer's is not. For
        byte-level tokenizers it is empty.
        """
        if self.is_byte_level:
            return []
        hidden = self.special_ids if skip_special_tokens else frozenset()
        end: list[int] = []
        for token_id in map(int, prompt_ids[::-1]):
            if token_id in hidden or self.backend.id_to_token(token_id) is None:
                continue
            end.append(token_id)
            if token_id not in self.byte_ids or len(end) == _MAX_CONTEXT:  # a run of bytes is decoded as a whole
                break
        return end[::-1]

    def decode_behind(self, context: Sequence[int], token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text that these ids add to that of `context`, see there."""
        text = self.decode([*context, *token_ids], skip_special_tokens)
        return text[len(self.text_before(context)) :]

    def text_before(self, context: Sequence[int]) -> str:
        """The text of a context, without a character at its end that the answer may complete."""
        return self.decode(context, skip_special_tokens=False).rstrip("\ufffd") if context else ""

    def _ids(self, text: str, add_special_tokens: bool) -> Int32Array:
        _refuse_lone_surrogate(text)
        # A batch of one: it lets go of the interpreter lock, which `encode` keeps for seconds if the text is long.
        (encoding,) = self._plain_backend().encode_batch_fast([text], add_special_tokens=add_special_tokens)
        return np.array(encoding.ids, dtype=np.int32)

    def _prefix_ids(self, text: str, add_special_tokens: bool) -> Int32Array:
        _refuse_lone_surrogate(text)
        # A batch of one, as in `_ids`; the fast variant knows no words.
        (encoding,) = self._plain_backend().encode_batch([text], add_special_tokens=add_special_tokens)
        last = _last_word(encoding)
        if last == 0:
            raise ValueError(
                f"the text {text[:40]!r} is one word: its tokens may be others when it goes on; give a longer text, or"
                " token ids, which are taken as they are"
            )
        span = encoding.word_to_tokens(last)
        assert span is not None, f"word {last} has no tokens"
        return np.array(encoding.ids[: span[0]], dtype=np.int32)

    def _plain_backend(self) -> tokenizers.Tokenizer:
        """One that cuts and pads nothing: a user's hf(text, truncation=True) leaves that on in `backend`.

        It is not turned off there, since another thread may be encoding with it. The copy is made once.
        """
        backend = self.backend
        if backend.truncation is None and backend.padding is None and not backend.encode_special_tokens:
            return backend
        plain = self._plain
        if plain is None or plain.get_vocab_size() != backend.get_vocab_size():  # the user added tokens
            plain = tokenizers.Tokenizer.from_str(backend.to_str())
            _encode_all(plain)
            self._plain = plain
        return plain


def _last_word(encoding: tokenizers.Encoding) -> int:
    """Number of the last word in it, 0 if there is none. Tokens that were added around a text are in no word."""
    words = map(encoding.token_to_word, range(len(encoding) - 1, -1, -1))
    return next((word for word in words if word is not None), 0)


def _encode_all(backend: tokenizers.Tokenizer) -> None:
    """Have it encode whole texts and nothing else, and special tokens as their ids."""
    backend.no_truncation()
    backend.no_padding()
    backend.encode_special_tokens = False


def _longest_token(source: PreTrainedTokenizerFast | GGUFTokenizer, is_byte_level: bool) -> int:
    if isinstance(source, GGUFTokenizer):
        return source.longest_token
    size = len if is_byte_level else num_bytes  # in GPT-2's spelling each character is a byte
    return max(map(size, source.get_vocab()), default=1)


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

"""`Tokenizer`: what the engine asks of a model's tokenizer, around the Hugging Face object that users see."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerFast

from minisgl.core.batch import Int32Array
from minisgl.tokenizer.chat import render_chat


class Tokenizer:
    """A model's tokenizer. hf: the same as a Hugging Face object, to be called as `hf(text).input_ids`.

    vocab_size: added tokens included. special_ids: the ids that `decode` leaves out. longest_token: in characters.
    """

    def __init__(self, hf: PreTrainedTokenizerFast) -> None:
        self.hf = hf
        self.backend = hf.backend_tokenizer
        self.vocab_size: int = len(hf)
        self.longest_token: int = max(map(len, hf.get_vocab()), default=1)
        added = self.backend.get_added_tokens_decoder()
        self.special_ids = frozenset(token_id for token_id, token in added.items() if token.special)

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
        text = render_chat(self.hf, messages, add_generation_prompt=add_generation_prompt, **kwargs)
        return self._ids(text, add_special_tokens=False)

    def decode(self, token_ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """The text of these ids, its spaces as they are; ids outside the vocabulary have no text."""
        text: str = self.backend.decode([int(i) for i in token_ids], skip_special_tokens=skip_special_tokens)
        return text

    def _ids(self, text: str, add_special_tokens: bool) -> Int32Array:
        _refuse_lone_surrogate(text)
        # Not through `backend`: a user's hf(text, truncation=True) leaves truncation on there, this call turns it off.
        ids = self.hf(text, add_special_tokens=add_special_tokens, return_attention_mask=False, verbose=False).input_ids
        return np.array(ids, dtype=np.int32)


def _refuse_lone_surrogate(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        raise ValueError(f"text has the lone surrogate U+{code:04X} at character {error.start}") from None

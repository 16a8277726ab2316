"""From what a user gives, a text, a chat or token ids, to token ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from minisgl.core import FieldError, Limits
from minisgl.tokenizer import Tokenizer
from minisgl.utils.arrays import Int32Array

MAX_SALT_LENGTH = 1024

Prompt = str | Sequence[int] | Int32Array
Prompts = Prompt | Sequence[Prompt]
Messages = Sequence[Mapping[str, Any]]


class Encoder:
    """ValueError from all methods for what is no text, chat or list of ids, and for more than the context can hold."""

    def __init__(self, tokenizer: Tokenizer, limits: Limits) -> None:
        self._tokenizer = tokenizer
        self._limits = limits

    def ids(self, prompt: Prompt) -> Int32Array:
        """[N] int32: of a text, or token ids as they are."""
        return self._of_text_or_ids(prompt, self._tokenizer.encode)

    def chat_ids(self, messages: Messages, template: Mapping[str, Any]) -> Int32Array:
        """The same for a conversation, by the model's chat template. template: its variables."""
        text = self._tokenizer.render_conversation(messages, **template)
        return self._encode(text, self._tokenizer.encode_rendered)

    def prefix_ids(self, prefix: Prompt) -> Int32Array:
        """With what the ids of every prompt begin that begins with this; of a text all but its last word.

        Never none: ValueError for an empty prefix, and for ids that are in no prompt.
        """
        return self._checked_prefix(self._of_text_or_ids(prefix, self._tokenizer.encode_prefix))

    def chat_prefix_ids(self, messages: Messages, template: Mapping[str, Any]) -> Int32Array:
        """The same for conversations that begin with these messages."""
        text = self._tokenizer.render_conversation(messages, **{"add_generation_prompt": False, **template})
        return self._checked_prefix(self._encode(text, self._tokenizer.encode_rendered_prefix))

    def _of_text_or_ids(self, given: Prompt, encode: Callable[[str], Int32Array]) -> Int32Array:
        if isinstance(given, str):
            return self._encode(given, encode)
        if isinstance(given, list):  # millions of tokens are refused before an array is made of them
            self._limits.check_len(len(given))
        return _token_ids(given)

    def _encode(self, text: str, encode: Callable[[str], Int32Array]) -> Int32Array:
        self._limits.check_text(text, self._tokenizer.longest_token)
        return encode(text)

    def _checked_prefix(self, ids: Int32Array) -> Int32Array:
        self._limits.check_ids(ids, "prefix")
        return ids


def check_salt(salt: str) -> None:
    """FieldError for a cache salt that is no text, too long, or cannot be written in UTF-8."""
    if not isinstance(salt, str) or len(salt) > MAX_SALT_LENGTH:
        raise FieldError(
            "cache_salt", f"cache_salt={repr(salt)[:80]} is not a string of at most {MAX_SALT_LENGTH} characters"
        )
    try:
        salt.encode()
    except UnicodeEncodeError:
        raise FieldError("cache_salt", f"cache_salt={salt!r} has a lone surrogate") from None


def _token_ids(prompt: Sequence[int] | Int32Array) -> Int32Array:
    try:
        array = np.asarray(prompt)
    except ValueError:  # nested lists of unlike lengths
        array = np.empty((0, 0))
    if array.ndim != 1 or (array.size and not np.issubdtype(array.dtype, np.integer)):
        raise ValueError(f"a prompt is a text or a flat list of token ids, not {repr(prompt)[:80]}")
    if array.size and not (int(array.min()) >= -(2**31) and int(array.max()) < 2**31):
        raise ValueError(f"token ids reach from {array.min()} to {array.max()}: no vocabulary is so large")
    return array.astype(np.int32)  # always a copy: the caller may reuse its own


def each_prompt(prompts: Prompts) -> list[Prompt]:
    """One prompt or many as a list. ValueError for what is neither."""
    if isinstance(prompts, str) or _is_token_ids(prompts):
        return [cast(Prompt, prompts)]
    if not isinstance(prompts, Sequence | np.ndarray):
        raise ValueError(f"prompts are texts or token ids, one or a list of them, not {type(prompts).__name__}")
    return list(cast(Sequence[Prompt], prompts))


def _is_token_ids(prompts: Any) -> bool:
    """Whether this is one prompt in token ids: a flat array, or a list that starts with a number."""
    if hasattr(prompts, "ndim"):
        return bool(prompts.ndim == 1)
    return isinstance(prompts, Sequence) and len(prompts) > 0 and not hasattr(prompts[0], "__len__")

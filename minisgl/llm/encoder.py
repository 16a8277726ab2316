"""From what a user gives, a text, a chat or token ids, to token ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, cast

import numpy as np

from minisgl.core import FieldError, Limits, SamplingParams
from minisgl.tokenizer import Tokenizer
from minisgl.tokenizer.chat import ARGUMENTS, check_variables
from minisgl.utils.arrays import Int32Array

MAX_SALT_LENGTH = 1024

Prompt = str | Sequence[int] | Int32Array | Mapping[str, Any]
Prompts = Prompt | Sequence[Prompt]
Messages = Sequence[Mapping[str, Any]]
_PARAMS = dict.fromkeys([field.name for field in fields(SamplingParams)], ", a field of SamplingParams")


class Encoder:
    """ValueError from all methods for what is no text, chat or list of ids, and for more than the context can hold."""

    def __init__(self, tokenizer: Tokenizer, limits: Limits) -> None:
        self._tokenizer = tokenizer
        self._limits = limits

    def ids(self, prompt: Prompt) -> Int32Array:
        """[N] int32: of a text, or token ids as they are."""
        return self._of_text_or_ids(prompt, self._tokenizer.encode)

    def template_kwargs(
        self, template: Mapping[str, Any] | None, keywords: Mapping[str, Any], also: Iterable[str]
    ) -> dict[str, Any]:
        """Keywords for `chat_ids`, of those that a `chat` does not know itself. also: those that it does know.

        template: variables that the chat template may read or not. TypeError for a keyword that is neither an argument
        of `Tokenizer.render` nor a variable that the template reads, for a field of `SamplingParams`, and for tools or
        documents where the template reads none.
        """
        if template is not None and not isinstance(template, Mapping):
            raise TypeError(f"template={template!r} is not a mapping; another chat template is chat_template=")
        for name in keywords:
            if name in _PARAMS:
                raise TypeError(f"{name} is a field of SamplingParams: chat(messages, SamplingParams({name}=...))")
            if name == "chat_template_kwargs":
                raise TypeError("chat_template_kwargs is template={...} here")
        arguments = {name: value for name, value in keywords.items() if name in ARGUMENTS}
        variables = {name: value for name, value in keywords.items() if name not in ARGUMENTS}
        wanted = [name for name in ("tools", "documents") if arguments.get(name)]
        if variables or template or wanted:
            read = self._tokenizer.template_variables(arguments.get("chat_template"), bool(arguments.get("tools")))
            check_variables(read, variables, template or {}, ARGUMENTS | dict.fromkeys(also, "") | _PARAMS)
            if read is not None and (ignored := [name for name in wanted if name not in read]):
                raise TypeError(f"the chat template of this model reads no {' and no '.join(ignored)}")
        return arguments | {"template": {**(template or {}), **variables}}

    def chat_ids(self, messages: Messages, template: Mapping[str, Any]) -> Int32Array:
        """[N] int32: of a conversation, by the model's chat template. template: keywords of `Tokenizer.render`."""
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
        rows = _rows(given)
        if len(rows) != 1:
            raise ValueError(f"this is {len(rows)} prompts, where one is expected")
        return _token_ids(rows[0])

    def _encode(self, text: str, encode: Callable[[str], Int32Array]) -> Int32Array:
        self._limits.check_text(text, self._tokenizer.longest_token)
        return encode(text)

    def _checked_prefix(self, ids: Int32Array) -> Int32Array:
        self._limits.check_ids(ids, "prefix")
        self._limits.check_len(len(ids))
        return ids


def is_batch(messages: Any) -> bool:
    """Whether these are several conversations: a list of lists of messages."""
    return isinstance(messages, Sequence) and len(messages) > 0 and isinstance(messages[0], list | tuple)


@contextmanager
def numbered(what: str, index: int, total: int) -> Iterator[None]:
    """Have a ValueError from the block begin with which of several it is about."""
    try:
        yield
    except ValueError as error:
        if total > 1:
            error.args = (f"{what} {index}: {error}",)
        raise


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


def each_prompt(prompts: Prompts) -> list[Prompt]:
    """One prompt or many as a list. ValueError for what is neither.

    Besides texts and token ids: what a Hugging Face tokenizer or its chat template gives (a dict with input_ids, of one
    prompt or many, whose attention_mask tells padding), arrays and tensors of shape [n] and [1, n], and lists of these.
    """
    if isinstance(prompts, str):
        return [prompts]
    if isinstance(prompts, Sequence) and not _is_flat(prompts):
        return list(cast(Sequence[Prompt], prompts))
    return cast("list[Prompt]", _rows(prompts))


def _rows(prompts: Any) -> list[Any]:
    """The prompts of a dict, an array or a flat list, each in token ids without padding."""
    if isinstance(prompts, Mapping):
        if "input_ids" not in prompts:
            raise ValueError(
                "prompts are texts or token ids, one or a list of them, or a dict with input_ids, not one with"
                f" {', '.join(map(repr, prompts)) or 'nothing'}"
            )
        return _unpadded(prompts["input_ids"], prompts.get("attention_mask"))
    if hasattr(prompts, "ndim"):
        return _unpadded(prompts, None)
    if not isinstance(prompts, Sequence):
        raise ValueError(f"prompts are texts or token ids, one or a list of them, not {type(prompts).__name__}")
    return [prompts]


def _unpadded(ids: Any, mask: Any) -> list[Any]:
    """One prompt for each row of ids; of a mask's rows what is not 0 counts."""
    shape = list(ids.shape) if hasattr(ids, "ndim") else None
    if shape is None and (not isinstance(ids, Sequence) or isinstance(ids, str)):
        raise ValueError(f"input_ids are token ids, of one prompt or a list of them, not {type(ids).__name__}")
    if shape is not None and len(shape) not in (1, 2):
        raise ValueError(f"token ids have shape [n], or [b, n] for b prompts, not {shape}")
    if _is_flat(ids) or len(ids) == 0:
        return [ids if mask is None else _masked(ids, mask)]
    if mask is None:
        if shape is not None and shape[0] > 1:
            raise ValueError(
                f"prompts as one array of shape {shape} may hold padding: give the tokenizer's whole result, whose"
                " attention_mask tells, or a list of prompts"
            )
        return list(ids)
    if not hasattr(mask, "__len__") or len(mask) != len(ids):
        raise ValueError("the attention_mask has not as many rows as the input_ids")
    return [_masked(row, row_mask) for row, row_mask in zip(ids, mask, strict=True)]


def _masked(ids: Any, mask: Any) -> Int32Array:
    array, kept = _token_ids(ids), np.asarray(_on_host(mask))
    if kept.shape != array.shape:
        raise ValueError(f"the attention_mask has shape {list(kept.shape)}, the input_ids {list(array.shape)}")
    unpadded: Int32Array = array[kept != 0]
    return unpadded


def _token_ids(prompt: Any) -> Int32Array:
    try:
        array = np.asarray(_on_host(prompt))
    except (TypeError, ValueError, RuntimeError):  # ragged lists, dtypes unknown to NumPy, tensors without data
        array = np.empty((0, 0))
    if array.ndim != 1 or (array.size and not np.issubdtype(array.dtype, np.integer)):
        shape = f"shape {list(prompt.shape)}, dtype {prompt.dtype}: " if hasattr(prompt, "shape") else ""
        raise ValueError(f"a prompt is a text or a flat list of token ids, not {shape}{repr(prompt)[:80]}")
    if array.size and not (int(array.min()) >= -(2**31) and int(array.max()) < 2**31):
        raise ValueError(f"token ids reach from {array.min()} to {array.max()}: no vocabulary is so large")
    return array.astype(np.int32)  # always a copy: the caller may reuse its own


def _on_host(array: Any) -> Any:
    """A tensor of another device, copied to where NumPy can read it; anything else as it is."""
    return array.cpu() if callable(getattr(array, "cpu", None)) else array


def _is_flat(ids: Any) -> bool:
    """Whether this is one prompt in token ids: an array of one dimension, or a list that starts with a number."""
    if hasattr(ids, "ndim"):
        return bool(ids.ndim == 1)
    if not isinstance(ids, Sequence) or isinstance(ids, str) or len(ids) == 0:
        return False
    return getattr(ids[0], "ndim", None) == 0 or not hasattr(ids[0], "__len__")

"""What a request asks of the sampler, checked when it is made."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, TypeVar

from minisgl.core.errors import FieldError
from minisgl.utils.options import option

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
MAX_LOGPROBS = 20
MAX_CHOICES = 128
MAX_STOP_STRINGS = 64
MAX_STOP_LENGTH = 1024  # characters; every streamed text holds back up to so many
_SURROGATE = re.compile("[\ud800-\udfff]")
_Class = TypeVar("_Class", bound=type)


def with_advice(given: Mapping[str, Any], advice: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of `SamplingParams`: as given, else as a model's makers advise.

    A given temperature of 0 asks for the model's most likely token, and takes no advice, not even a penalty. Any other
    takes no advised min_p: what is left beside the best token was chosen for the advised temperature.
    """
    temperature = given.get("temperature")
    if temperature == 0:
        return {**given}
    if temperature is not None:
        advice = {name: value for name, value in advice.items() if name != "min_p"}
    return {**advice, **given}


def _notes_given(cls: _Class) -> _Class:
    """Have each object know which fields its maker named: `advised` fills the others."""
    init = cls.__init__  # type: ignore[misc]

    @functools.wraps(init)
    def noting(self: Any, **given: Any) -> None:
        object.__setattr__(self, "_given", frozenset(given))
        init(self, **given)

    cls.__init__ = noting  # type: ignore[misc]
    return cls


@_notes_given
@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How to choose tokens and when to stop. Frozen: one object may be shared by many requests.

    A field that is not given has its default below; in `LLM.chat` it has what the model's makers advise, if they do.
    `dataclasses.replace` gives all fields.

    Raises FieldError naming the field, its value and what is allowed. Values are kept as plain Python ones: sequences
    as tuples, NumPy numbers as int and float, logit_bias as a dict of its own (such an object has no hash).
    The filters top_k, top_p and min_p are in `engine.filters`.
    """

    temperature: float = option(0.0, "0 takes the most likely token, whatever the filters; higher is more random")
    top_k: int = option(-1, "choose among this many best tokens; 0 or -1 is off")
    top_p: float = option(1.0, "choose among the best tokens that together have this probability")
    min_p: float = option(0.0, "leave out tokens less likely than this share of the best one's probability")
    seed: int | None = option(None, "makes the random choices repeatable (default: a fresh one for each request)")
    max_tokens: int = option(1024, "generate at most this many; 0 only computes the prompt, which stays cached")
    min_tokens: int = option(0, "no end token, stop token or stop string before this many")
    stop: str | Sequence[str] = option((), "the text ends before the earliest of these strings")
    stop_token_ids: Sequence[int] = option((), "these tokens end the text like an end token, ignore_eos or not")
    ignore_eos: bool = option(False, "go on after the model's end tokens")
    skip_special_tokens: bool = option(True, "leave special tokens out of the text")
    repetition_penalty: float = option(1.0, "over 1 makes tokens of prompt and text less likely")
    presence_penalty: float = option(0.0, "taken off the logits of tokens generated before")
    frequency_penalty: float = option(0.0, "taken off the logits of tokens for each time they were generated")
    logit_bias: Mapping[int, float] | None = option(None, "added to the logits of these tokens")
    logprobs: int | None = option(None, "report log-probabilities: of the chosen token and this many best ones")
    prompt_logprobs: int | None = option(None, "the same for the prompt's tokens")
    n: int = option(1, "independent texts for one prompt")

    def __post_init__(self) -> None:
        for name, (low, high) in _FLOAT_RANGES.items():
            self._set(name, _float(name, getattr(self, name), low, high))
        for name, (int_low, int_high) in _INT_RANGES.items():
            self._set(name, _int(name, getattr(self, name), int_low, int_high))
        for name, (int_low, int_high) in _OPTIONAL_INT_RANGES.items():
            if getattr(self, name) is not None:
                self._set(name, _int(name, getattr(self, name), int_low, int_high))
        self._set("stop", _stop_strings(self.stop))
        self._set("stop_token_ids", _token_ids(self.stop_token_ids))
        self._set("logit_bias", _logit_bias(self.logit_bias))
        self._check_flags_and_pairs()

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _check_flags_and_pairs(self) -> None:
        for name in ("ignore_eos", "skip_special_tokens"):
            if not isinstance(getattr(self, name), bool):
                raise FieldError(name, f"{name}={getattr(self, name)!r} is not a bool")
        if self.min_tokens > self.max_tokens:
            raise FieldError("min_tokens", f"min_tokens={self.min_tokens} is more than max_tokens={self.max_tokens}")

    @property
    def is_greedy(self) -> bool:
        """Whether the best token is taken: then top_k, top_p, min_p and seed have no effect."""
        return self.temperature == 0

    @property
    def has_filters(self) -> bool:
        """Whether any of top_k, top_p and min_p is on."""
        return self.top_k > 0 or self.top_p < 1 or self.min_p > 0

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """`stop`, always as a tuple."""
        return tuple(self.stop)

    def advised(self, advice: Mapping[str, Any]) -> SamplingParams:
        """Copy with a model's advice for the fields that were not given, by the rule of `with_advice`."""
        given: frozenset[str] | None = self.__dict__.get("_given")
        if given is None:  # made without a call, as from a message: complete
            return self
        fields = with_advice({name: getattr(self, name) for name in given}, advice)
        return replace(self, **fields) if fields.keys() - given else self

    def validate_vocab(self, vocab_size: int) -> None:
        """Raise FieldError if a stop_token_ids or logit_bias token is not below `vocab_size`."""
        for name, token_ids in (("stop_token_ids", self.stop_token_ids), ("logit_bias", self.logit_bias or ())):
            for token_id in token_ids:
                if token_id >= vocab_size:
                    raise FieldError(name, f"{name} names token {token_id}, but the vocabulary has {vocab_size} tokens")


_FLOAT_RANGES = {
    "temperature": (0.0, math.inf),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (0.001, 1000.0),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
}
_INT_RANGES = {
    "top_k": (-1, INT64_MAX),
    "max_tokens": (0, INT64_MAX),
    "min_tokens": (0, INT64_MAX),
    "n": (1, MAX_CHOICES),
}
_OPTIONAL_INT_RANGES = {
    "seed": (INT64_MIN, INT64_MAX),
    "logprobs": (0, MAX_LOGPROBS),
    "prompt_logprobs": (0, MAX_LOGPROBS),
}


def _float(name: str, value: Any, low: float, high: float, item: str = "") -> float:
    """item: which part of the field it is."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise FieldError(name, f"{name}{item}={value!r} is not a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not (math.isfinite(number) and low <= number <= high):
        allowed = f"in [{low:g}, {high:g}]" if math.isfinite(high) else f"a finite number of at least {low:g}"
        raise FieldError(name, f"{name}{item}={value!r} is not {allowed}")
    return number


def _int(name: str, value: Any, low: int, high: int | None, item: str = "") -> int:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise FieldError(name, f"{name}{item}={value!r} is not an integer")
    number = int(value)
    if number < low or (high is not None and number > high):
        allowed = f"at least {low}" if high is None else f"in [{low}, {high}]"
        raise FieldError(name, f"{name}{item}={number} is not {allowed}")
    return number


def _stop_strings(value: Any) -> tuple[str, ...]:
    strings = (value,) if isinstance(value, str) else _items("stop", value)
    if len(strings) > MAX_STOP_STRINGS:
        raise FieldError("stop", f"stop has {len(strings)} strings; at most {MAX_STOP_STRINGS} are allowed")
    for string in strings:
        if not isinstance(string, str) or not string:
            raise FieldError("stop", f"stop holds {string!r}; only non-empty strings are allowed")
        if _SURROGATE.search(string):
            raise FieldError("stop", f"stop holds {string!r}: a lone surrogate is in no text")
        if len(string) > MAX_STOP_LENGTH:
            raise FieldError(
                "stop", f"stop holds a string of {len(string)} characters; at most {MAX_STOP_LENGTH} are allowed"
            )
    return strings


def _token_ids(value: Any) -> tuple[int, ...]:
    return tuple(_int("stop_token_ids", token_id, 0, None) for token_id in _items("stop_token_ids", value))


def _items(name: str, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise FieldError(name, f"{name}={value!r} is not a list or tuple")
    return tuple(value)


def _logit_bias(value: Any) -> dict[int, float] | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise FieldError("logit_bias", f"logit_bias={value!r} is not a mapping from token id to bias")
    return {
        _int("logit_bias", token_id, 0, None, " token"): _float("logit_bias", bias, -100.0, 100.0, f"[{token_id}]")
        for token_id, bias in value.items()
    }

"""Explanations on their way out: what a client may know of them, and what is noted of a request.

What another prompt has after the two part (`Explanation.branch`) is for nobody but the operator who asked for texts.
Neither may a client learn that others have its text cached under another salt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from minisgl.core import Cause, Explanation
from minisgl.llm.client import Prepared
from minisgl.llm.explained import Explained, Window
from minisgl.server.schema.explanation import (
    PUBLIC_CAUSES,
    Around,
    CauseSegment,
    ExplainedPrompt,
    PromptExplanation,
)
from minisgl.tokenizer import Tokenizer

CACHE_HEADER, EVICTED_HEADER = "x-prefix-cache", "x-prefix-cache-evicted-s"
Headers = list[tuple[bytes, bytes]]
Facts = Mapping[str, Any]  # an explanation's fields by name, as deltas and outputs have them


@dataclass(frozen=True, slots=True)
class Reasons:
    """Why a request's prompt tokens were computed, or not: of its only prompt, or sums over several.

    left_at, evicted_s, evicted_tokens: None of several. window: the tokens around left_at, where texts may be shown.
    """

    causes: dict[Cause, int]
    left_at: int | None = None
    evicted_s: float | None = None
    evicted_tokens: int | None = None
    window: Window | None = None

    @classmethod
    def of(cls, explanation: Explanation) -> Reasons:
        left_at = _left_at(explanation)
        return cls(explanation.causes, left_at, explanation.evicted_s, explanation.evicted_tokens)

    def with_window(self, explained: Explained) -> Reasons:
        return replace(self, window=Window.of(explained))

    def plus(self, other: Reasons) -> Reasons:
        """Of one prompt more."""
        return Reasons({cause: tokens + self.causes[cause] for cause, tokens in other.causes.items()})


def _left_at(explanation: Explanation) -> int | None:
    """None if nothing was looked up."""
    return None if explanation.not_looked_up else explanation.left_at


def public(explained: Explained) -> Explained:
    """The same as it would be if nobody had anything cached under another salt.

    What others have makes a difference only where the prompt is not known to its own salt to the end: there it takes
    tokens from never_seen, and from below_page those that fill a page with the others' ones, and makes its last token
    one that had to be computed anyway.
    """
    ids, explanation = explained
    if explanation.not_looked_up or explanation.left_at == len(ids):
        return Explained(ids, msgspec.structs.replace(explanation, branch=()))
    found = explanation.hit + explanation.joined + explanation.evicted
    below_page = max(0, explanation.left_at - found)
    own = msgspec.structs.replace(
        explanation,
        below_page=below_page,
        other_namespace=0,
        last_token=0,
        never_seen=len(ids) - found - below_page,
        branch=(),
    )
    return Explained(ids, own)


def told(explained: Explained, tokenizer: Tokenizer) -> PromptExplanation:
    """To a client, of a prompt of its own."""
    own = public(explained)
    ids, explanation = own
    found = own.around(tokenizer)
    return PromptExplanation(
        prompt_tokens=len(ids),
        cached_tokens=explanation.hit + explanation.joined,
        causes={cause: getattr(explanation, cause) for cause in PUBLIC_CAUSES},
        left_at=_left_at(explanation),
        evicted_s=explanation.evicted_s,
        evicted_tokens=explanation.evicted_tokens,
        around=None if found is None else Around(found.before, found.after),
    )


def told_in_full(explained: Explained, tokenizer: Tokenizer) -> ExplainedPrompt:
    """The same with the text of each cause."""
    segments = public(explained).segments(tokenizer)
    fields = msgspec.structs.asdict(told(explained, tokenizer))
    return ExplainedPrompt(**fields, segments=[CauseSegment(*segment) for segment in segments])


def told_of_several(prompts: Sequence[Explained]) -> PromptExplanation:
    """Sums."""
    explanations = [public(prompt).explanation for prompt in prompts]
    return PromptExplanation(
        prompt_tokens=sum(len(prompt.input_ids) for prompt in prompts),
        cached_tokens=sum(explanation.hit + explanation.joined for explanation in explanations),
        causes={cause: sum(getattr(explanation, cause) for explanation in explanations) for cause in PUBLIC_CAUSES},
        left_at=None,
        evicted_s=None,
        evicted_tokens=None,
        around=None,
    )


class Teller:
    """Tells a client of the prompts of one request. None is what is not known."""

    def __init__(self, prepared: Sequence[Prepared], tokenizer: Tokenizer) -> None:
        self._prepared = prepared
        self._tokenizer = tokenizer

    def of(self, index: int, facts: Facts | None) -> PromptExplanation | None:
        """Of a prompt, as one of its choices found it."""
        return None if facts is None else told(self._explained(index, facts), self._tokenizer)

    def of_all(self, facts: Sequence[Facts | None]) -> PromptExplanation | None:
        """Of the request: of its only prompt, or sums. facts: of its prompts, in their order."""
        if len(facts) == 1:
            return self.of(0, facts[0])
        known = [self._explained(index, each) for index, each in enumerate(facts) if each is not None]
        return told_of_several(known) if len(known) == len(facts) else None

    def _explained(self, index: int, facts: Facts) -> Explained:
        return Explained(self._prepared[index].input_ids, Explanation(**facts))


def headers_of(explanation: PromptExplanation | None) -> Headers:
    """The response's: a dictionary of RFC 9651, and a decimal. None where nothing is known."""
    if explanation is None:
        return []
    left_at = {} if explanation.left_at is None else {"left_at": explanation.left_at}
    members = [f"{name.replace('_', '-')}={value}" for name, value in (dict(explanation.causes) | left_at).items()]
    headers = [(CACHE_HEADER.encode(), ", ".join(members).encode())]
    if explanation.evicted_s is not None:
        headers.append((EVICTED_HEADER.encode(), f"{explanation.evicted_s:.3f}".encode()))
    return headers

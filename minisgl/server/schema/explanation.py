"""Why a prompt's tokens were computed, or not: what clients are told, and what operators are."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from minisgl.core import CAUSES, Cause

PUBLIC_CAUSES = tuple(cause for cause in CAUSES if cause != "other_namespace")


class Around(msgspec.Struct):
    """Some text of the prompt before and after the position at which it left what came closest to it."""

    before: str
    after: str


class PromptExplanation(msgspec.Struct, kw_only=True):
    """Of one prompt, or sums over several, of which left_at, evicted_s, evicted_tokens and around are null.

    cached_tokens: hit and joined. causes: tokens by cause: hit, joined, evicted, below_page, last_token, never_seen,
    not_looked_up. left_at: how many tokens it has in common with what came closest; null if nothing was looked up.
    evicted_s, evicted_tokens: how long ago the first of the evicted ones went, null if none did. around: null if all of
    the prompt was known.
    """

    prompt_tokens: int
    cached_tokens: int
    causes: Mapping[Cause, int]
    left_at: int | None
    evicted_s: float | None
    evicted_tokens: int | None
    around: Around | None


class CauseSegment(msgspec.Struct):
    """Tokens in a row that have one cause. text: theirs; a character that lies in two segments is in the later one."""

    cause: Cause
    tokens: int
    text: str


class ExplainedPrompt(PromptExplanation, kw_only=True):
    """segments: in order of position; their texts joined are the whole prompt, special tokens included."""

    segments: list[CauseSegment]


class AroundBranch(Around):
    """branch: what the other prompt has there; "" if it ends there. same_text: that says the same, in other tokens."""

    branch: str
    same_text: bool


class RequestExplanation(msgspec.Struct, kw_only=True):
    """Of a request that is over; as in its answer, but with other_namespace for itself. around: with --ui-show-text."""

    causes: Mapping[Cause, int]
    left_at: int | None
    evicted_s: float | None
    evicted_tokens: int | None
    around: AroundBranch | msgspec.UnsetType = msgspec.UNSET


class PastRequest(msgspec.Struct, kw_only=True):
    """One that generates, and is over. started_at: seconds since 1970. uids: by which the engine knew its sequences."""

    request_id: str
    uids: tuple[int, ...]
    endpoint: str
    started_at: float
    status: int
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    queue_s: float | None
    first_token_s: float | None
    total_s: float
    finish_reason: str | None
    explanation: RequestExplanation | None


class PastRequests(msgspec.Struct):
    requests: list[PastRequest]

"""What a client may know of an explanation, and the header that tells it."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from support.tiny_model import make_tokenizer

from minisgl.core import CAUSES, Explanation
from minisgl.kvcache import Namespace, create_prefix_cache
from minisgl.llm.explained import Explained
from minisgl.server.explaining import Reasons, headers_of, public, told, told_in_full, told_of_several
from minisgl.server.schema.explanation import Around
from minisgl.tokenizer import Tokenizer

TOKENIZER = Tokenizer(make_tokenizer())
TEXT = "You are helpful. It is 12:07 now."
NUM = len(TEXT)
KNOWN = Explanation(hit=16, never_seen=NUM - 16, left_at=16, branch=tuple(TOKENIZER.encode(" secret").tolist()))


def explained(explanation: Explanation = KNOWN, text: str = TEXT) -> Explained:
    return Explained(TOKENIZER.encode(text), explanation)


def test_a_client_is_told_its_own_text_and_nothing_of_the_other_prompt() -> None:
    made = told_in_full(explained(), TOKENIZER)
    assert (made.prompt_tokens, made.cached_tokens, made.left_at) == (NUM, 16, 16)
    assert made.around == Around("helpful.", " It is 1")
    assert "secret" not in str(made)
    assert [(segment.cause, segment.text) for segment in made.segments] == [
        ("hit", "You are helpful."),
        ("never_seen", " It is 12:07 now."),
    ]


@pytest.mark.parametrize("page_size", [1, 2, 4])
def test_a_client_is_told_the_same_whatever_others_have_under_their_salts(page_size: int) -> None:
    """Of two tokens, so that prompts meet everywhere: in a page, at its end, at the prompt's end."""
    rng = np.random.default_rng(page_size)
    alone, shared = (
        create_prefix_cache(torch.device("cpu"), "radix", page_size, ghost_tokens=16) for _ in ("alone", "shared")
    )
    num_differing = 0
    for _ in range(400):
        ids = rng.integers(0, 2, rng.integers(1, 14)).astype(np.int32)
        found = [cache.explain(ids) for cache in (alone, shared)]
        num_differing += found[0].causes != found[1].causes
        assert public(Explained(ids, found[0])).explanation == public(Explained(ids, found[1])).explanation
        others = rng.random() < 0.7
        pages = np.zeros(len(ids) // page_size, np.int32)
        shared.insert_pages(ids, pages, Namespace("theirs" if others else ""))
        if not others:
            alone.insert_pages(ids, pages)
        if rng.random() < 0.1:
            for cache in (alone, shared):
                cache.purge(Namespace(""))
    assert num_differing > 20


def test_reasons_of_several_prompts_are_sums() -> None:
    one = Reasons.of(Explanation(hit=3, evicted=4, left_at=7, evicted_s=2.0, evicted_tokens=9))
    both = one.plus(Reasons.of(Explanation(hit=1, never_seen=2, left_at=1)))
    assert both.causes == {**dict.fromkeys(CAUSES, 0), "hit": 4, "evicted": 4, "never_seen": 2}
    assert (both.left_at, both.evicted_s, both.evicted_tokens) == (None, None, None)


def test_the_header_is_a_dictionary_of_rfc_9651() -> None:
    gone = Explanation(hit=4, evicted=8, never_seen=NUM - 12, left_at=12, evicted_s=12.3456, evicted_tokens=99)
    headers = dict(headers_of(told(explained(gone), TOKENIZER)))
    assert headers == {
        b"x-prefix-cache": b"hit=4, joined=0, evicted=8, below-page=0, last-token=0, never-seen=21, not-looked-up=0,"
        b" left-at=12",
        b"x-prefix-cache-evicted-s": b"12.346",
    }
    members = headers[b"x-prefix-cache"].decode().split(", ")
    assert all(re.fullmatch(r"[a-z*][a-z0-9_.*-]*=-?\d{1,15}", member) for member in members)


def test_the_header_of_several_prompts_has_sums_and_no_position() -> None:
    (header,) = headers_of(told_of_several([explained(), explained()]))
    assert header[1].startswith(b"hit=32, ")
    assert b"left-at" not in header[1]


def test_where_nothing_is_known_there_is_no_header() -> None:
    assert headers_of(None) == []


def test_where_nothing_was_looked_up_there_is_no_position() -> None:
    made = told(explained(Explanation(not_looked_up=NUM)), TOKENIZER)
    assert (made.causes["not_looked_up"], made.causes["never_seen"]) == (NUM, 0)
    assert (made.left_at, made.around) == (None, None)
    assert b"left-at" not in headers_of(made)[0][1]

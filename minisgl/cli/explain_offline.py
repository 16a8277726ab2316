"""What each of some prompts would find cached after those before it, by the real cache and without a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from minisgl.cli.explain_prompts import AskedPrompt
from minisgl.cli.explain_report import Found
from minisgl.core import Limits
from minisgl.llm.encoder import Encoder
from minisgl.llm.explained import REACH, Explained
from minisgl.scheduler.cache_manager import CacheManager
from minisgl.server.explaining import told_in_full
from minisgl.tokenizer import Tokenizer, load_tokenizer, text_around
from minisgl.utils.arrays import Int32Array
from minisgl.utils.math import div_ceil
from minisgl.utils.progress import tracked

ENDLESS = 2**31 - 1  # tokens of a context: here prompts are only looked at


def explain_offline(
    prompts: Sequence[AskedPrompt], model: Path, page_size: int, pool_tokens: int | None
) -> list[Found]:
    """One for each prompt, in their order. pool_tokens: None is as many as all of them have.

    Of the model only the tokenizer is read. ValueError for a prompt that is none, or has more tokens than the pool.
    """
    tokenizer = load_tokenizer(model)
    encoder = Encoder(tokenizer, Limits(tokenizer.vocab_size, ENDLESS, ENDLESS))
    all_ids = [_encode(encoder, prompt) for prompt in tracked(prompts, "tokenizing", "prompts")]
    past = _Past(all_ids, page_size, pool_tokens)
    found = []
    for number, ids in enumerate(tracked(all_ids, "explaining", "prompts")):
        explained = past.add(ids)
        found.append(_found(tokenizer, prompts, all_ids, number, explained))
    return found


def _encode(encoder: Encoder, prompt: AskedPrompt) -> Int32Array:
    try:
        ids = encoder.chat_ids(prompt.messages, {}) if prompt.text is None else encoder.ids(prompt.text)
    except ValueError as error:
        raise ValueError(f"{prompt.where}: {error}") from error
    if len(ids) == 0:
        raise ValueError(f"{prompt.where}: empty prompt: at least one token is needed")
    return ids


class _Past:
    """Prompts that ran one after another, each to its first token."""

    def __init__(self, prompts: Sequence[Int32Array], page_size: int, pool_tokens: int | None) -> None:
        longest = max(map(len, prompts))
        num_pages = sum(div_ceil(len(ids), page_size) for ids in prompts)
        if pool_tokens is not None:
            num_pages = min(num_pages, pool_tokens // page_size)  # what all of them need is as good as more
        if num_pages * page_size < longest:
            pages = "" if page_size == 1 else f", in pages of {page_size}"
            raise ValueError(f"--pool-tokens {pool_tokens}: the longest prompt has {longest} tokens{pages}")
        self._manager = CacheManager(num_pages, page_size, 1, longest, "radix", ghost_tokens=num_pages * page_size)

    def add(self, ids: Int32Array) -> Explained:
        """Why it would be computed now, or not; then it runs too."""
        explanation = self._manager.explain(ids)
        self._run(ids)
        return Explained(ids, explanation)

    def _run(self, ids: Int32Array) -> None:
        manager = self._manager
        allocation = manager.admit(manager.match(ids), len(ids))
        assert allocation is not None, "nothing else runs, and it is no longer than the pool"
        row = np.array([allocation.table_idx])
        manager.rows.device_len[row] = allocation.hit_len
        manager.grow(manager.growth(row, np.array([len(ids) - allocation.hit_len], np.int32)))
        manager.release(allocation, ids)


def _found(
    tokenizer: Tokenizer,
    prompts: Sequence[AskedPrompt],
    all_ids: Sequence[Int32Array],
    number: int,
    explained: Explained,
) -> Found:
    answer: dict[str, Any] = msgspec.to_builtins(told_in_full(explained, tokenizer))
    answer["evicted_s"] = None  # no time passes here
    closest = _closest(all_ids[:number], explained)
    if closest is None or answer["around"] is None:
        return Found(prompts[number].where, answer)
    other, left_at = all_ids[closest], explained.explanation.left_at
    answer["around"]["branch"] = text_around(tokenizer, other.tolist(), left_at, REACH)[1]
    common_end = _num_common(explained.input_ids[left_at:][::-1], other[left_at:][::-1])
    return Found(prompts[number].where, answer, prompts[closest].where, common_end)


def _closest(before: Sequence[Int32Array], explained: Explained) -> int | None:
    """The latest of the prompts that have as much in common with this one as was found; None if nothing was."""
    ids, left_at = explained.input_ids, explained.explanation.left_at
    if left_at == 0:
        return None
    common, last = ids[:left_at], ids[left_at - 1]
    for number in reversed(range(len(before))):
        other = before[number]  # of thousands few have even that one token there
        if len(other) >= left_at and other[left_at - 1] == last and np.array_equal(other[:left_at], common):
            return number
    return None


def _num_common(one: Int32Array, other: Int32Array) -> int:
    """How many tokens both begin with."""
    length = min(len(one), len(other))
    differing = np.flatnonzero(one[:length] != other[:length])
    return int(differing[0]) if len(differing) else length

"""What every request was promised, and what may be cached, kept beside a scheduler without looking at how it works."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from support.kv_oracle import OracleOutput, reference
from support.radix_model import ALPHABET, NAMESPACES, contents, tagged

from minisgl.core import Batch, Req
from minisgl.kvcache import Namespace
from minisgl.utils.math import div_ceil

if TYPE_CHECKING:
    from support.hand_driven import HandDriven

Prefix = tuple[int, ...]


class Promises:
    """cacheable: all prefixes, tagged with their namespace, that were computed or inserted and not purged since.

    aborted, cut: requests that were told to end; cut: with how many tokens. failing: of which a row will fail, or has;
    failed: those that have ended so. num_returns: admissions after a retraction.
    """

    def __init__(self, driven: HandDriven, max_overtakes: int) -> None:
        self.driven = driven
        self.max_overtakes = max_overtakes
        self.cacheable: set[Prefix] = set()
        self.num_returns = 0
        self.aborted: set[int] = set()
        self.cut: dict[int, int] = {}
        self.failing: set[int] = set()
        self.failed: set[int] = set()
        self._wanted: dict[int, list[int]] = {}
        self._texts: dict[int, list[int]] = {}
        self._stale: set[int] = set()
        self._num_admissions: Counter[int] = Counter()
        self._never_admitted: set[int] = set()
        self._overtaken: Counter[int] = Counter()

    # ---- what is asked for

    def submitted(self, uid: int) -> None:
        driven, prompt, params = self.driven, self.driven.prompts[uid], self.driven.params[uid]
        max_tokens = max(0, driven.scheduler.limits.max_device_len(len(prompt), params) - len(prompt))
        ends = frozenset() if params.ignore_eos else driven.scheduler.end_token_ids
        self._wanted[uid] = reference(prompt, max_tokens, ends)
        self._texts[uid] = prompt + reference(prompt, max_tokens + 1)
        self._never_admitted.add(uid)

    def end_asked(self, uid: int, num_tokens: int | None = None) -> None:
        """An abort, or a stop string after so many tokens."""
        if uid not in self.driven.prompts or uid in self.driven.finished or uid in self.cut:
            return
        if num_tokens is None:
            self.aborted.add(uid)
        else:
            self.cut[uid] = num_tokens

    def inserted(self, ids: Sequence[int], namespace: Namespace) -> None:
        size, tokens = self.driven.manager.page_size, tagged(ids, namespace)
        self.cacheable.update(tokens[:end] for end in range(size, len(tokens) + 1, size))

    def purged(self, prefix: Sequence[int], namespaces: Iterable[Namespace]) -> None:
        """Must be called before it is done."""
        for namespace in namespaces:
            start = tagged(prefix, namespace)
            own = 1 + NAMESPACES.index(namespace)
            self.cacheable = {p for p in self.cacheable if p[0] // ALPHABET != own or p[: len(start)] != start}
            for uid in self.driven.scheduler._admitted:
                known = self.driven.prompts[uid] + self.driven.tokens[uid][: self.cut.get(uid)]
                if self._namespace(uid) == namespace and known[: len(prefix)] == list(prefix):
                    self._stale.add(uid)

    # ---- what is done

    def planned(self, batch: Batch) -> None:
        for req in batch.reqs:
            num_admissions = self.driven.scheduler._admitted[req.uid].num_admissions
            if num_admissions != self._num_admissions[req.uid]:
                self._admitted(req, is_first=num_admissions == 1)
                self._num_admissions[req.uid] = num_admissions

    def launched(self, batch: Batch, output: OracleOutput) -> None:
        self.failing.update(batch.reqs[row].uid for row in output.errors)
        self._check_shared_pages([req for req in batch.reqs if req.uid not in self.failing])

    def committed(self, batch: Batch, output: OracleOutput) -> None:
        """Must be called before it is done."""
        self.failed.update(batch.reqs[row].uid for row in output.errors)
        for req in batch.reqs:
            if req.uid not in self.failed | self._stale:
                self.inserted(self._texts[req.uid][: req.device_len], self._namespace(req.uid))

    # ---- what must hold

    def check_tokens(self, uid: int) -> None:
        """There was news: in order, exactly what follows the prompt, and ended where and why it must."""
        driven, got, wanted = self.driven, self.driven.tokens[uid], self._wanted[uid]
        assert uid not in self.cut, f"news of uid {uid} after its stop string"
        assert got == wanted[: len(got)]
        reply = driven.finished.get(uid)
        if reply is None:
            return
        if reply.finish_reason == "abort":
            assert uid in self.aborted, f"uid {uid} was aborted by nobody"
        elif reply.finish_reason == "error":
            assert uid in self.failed or len(driven.prompts[uid]) > driven.scheduler.limits.pool_len
        else:
            params = driven.params[uid]
            ends = frozenset() if params.ignore_eos else driven.scheduler.end_token_ids
            assert (got, reply.finish_reason) == (wanted, "stop" if got and got[-1] in ends else "length")

    def check_retractions(self, ran: list[int]) -> None:
        """The oldest of those that ran still runs, or has ended."""
        assert not ran or self.driven.scheduler._admission.find(min(ran)) is None, f"uid {min(ran)} gave up its pages"

    def check_ends(self) -> None:
        """Nothing runs any more: everybody was answered."""
        missing = self.driven.prompts.keys() - self.driven.finished.keys() - self.cut.keys()
        assert not missing, f"never answered: {sorted(missing)}"

    def check_contents(self) -> None:
        """Only what may be cached is, and each page of it holds the KV of its own tokens."""
        size, slots = self.driven.manager.page_size, self.driven.engine.slots
        for prefix, (page, _, _) in contents(self.driven.manager.prefix_cache).items():
            assert prefix in self.cacheable, f"cached, but never computed or purged since: {prefix}"
            held = slots[page * size : (page + 1) * size]
            wanted = [(token % ALPHABET, at) for at, token in enumerate(prefix)][-size:]
            assert held == wanted, f"page {page} holds {held}, wanted {wanted}"

    def _admitted(self, req: Req, is_first: bool) -> None:
        hit = tagged(self._texts[req.uid][: req.cached_len], self._namespace(req.uid))
        assert not hit or hit in self.cacheable, f"uid {req.uid} matched what was purged, or is of others: {hit}"
        self._stale.discard(req.uid)
        self.num_returns += not is_first
        if is_first:
            self._never_admitted -= self.driven.finished.keys() | self.cut.keys() | {req.uid}
            self._overtaken.update(uid for uid in self._never_admitted if uid < req.uid)
            most = max((self._overtaken[uid] for uid in self._never_admitted), default=0)
            assert most <= self.max_overtakes, f"overtaken {most} times, {self.max_overtakes} were promised"

    def _check_shared_pages(self, reqs: list[Req]) -> None:
        """A page is in two rows only if all that they hold up to its end is the same, in the same namespace."""
        size = self.driven.manager.page_size
        known: dict[int, tuple[int, Prefix]] = {}
        for req in reqs:
            text = tagged(self._texts[req.uid], self._namespace(req.uid))
            row = self.driven.engine.page_table[req.table_idx, : div_ceil(req.device_len, size)]
            assert len(np.unique(row)) == len(row)
            for col, page in enumerate(row.tolist()):
                mine = req.uid, text[: (col + 1) * size]
                other = known.setdefault(page, mine)
                is_whole = (col + 1) * size <= req.device_len
                assert other is mine or (is_whole and other[1] == mine[1]), f"uids {other[0]}, {req.uid} share {page}"

    def _namespace(self, uid: int) -> Namespace:
        return Namespace(self.driven.salts[uid])

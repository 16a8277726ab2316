"""Hypothesis looks for the shortest run of operations after which scheduler or cache break a promise or lose a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from support.direct_cache import DirectCache
from support.hand_driven import HandDriven
from support.radix_model import NAMESPACES

from minisgl.kvcache import Namespace
from minisgl.kvcache.eviction import EVICTION_POLICIES
from minisgl.scheduler.ordering import POLICIES

END_TOKENS = frozenset(range(3, 12))
SALTS = st.sampled_from(["", "", "a"])
SPACES = st.sampled_from(NAMESPACES)
NUMBERS = st.integers(0, 30)  # of a request, a watch, a lock: counted from the latest, round and round
LENGTHS = st.integers(0, 40) | st.just(40)  # of the beginning of an earlier text: often all of it
TAILS = st.lists(st.sampled_from([20, 21]), min_size=1, max_size=12)
QUEUES = {
    "policy": st.sampled_from(POLICIES.names),
    "max_overtakes": st.sampled_from([0, 1, 3, 64]),
    "lookahead": st.sampled_from([0, 2, 256]),
    "reserve": st.sampled_from(["full", "estimate", "stingy", "stingy"]),
    "overlap": st.booleans(),
}


class SchedulerMachine(RuleBasedStateMachine):
    """Prompts are beginnings of earlier texts and tails of two tokens, so that most of them share something."""

    num_steps: ClassVar[int] = 0  # of all runs
    num_returns: ClassVar[int] = 0
    num_predicted: ClassVar[int] = 0

    @initialize(
        page_size=st.sampled_from([1, 2, 4]),
        num_tokens=st.sampled_from([24, 48, 100]),
        max_running_req=st.sampled_from([1, 3, 8, 8]),
        max_extend_tokens=st.sampled_from([3, 16, 1000]),
        eviction=st.sampled_from(["lru", "lru", *EVICTION_POLICIES.names]),
        end_token_ids=st.sampled_from([frozenset(), END_TOKENS]),
        queue=st.fixed_dictionaries(QUEUES),
    )
    def start(self, num_tokens: int, page_size: int, queue: dict[str, object], **options: object) -> None:
        self.driven = HandDriven(page_size=page_size, num_pages=num_tokens // page_size, **queue, **options)
        self.direct = DirectCache(self.driven)
        self.inserted: list[list[int]] = []

    # ---- requests

    @rule(
        number=NUMBERS,
        length=LENGTHS,
        tail=TAILS,
        max_tokens=st.integers(0, 20),
        salt=SALTS,
        ignore_eos=st.booleans(),
    )
    def submit(self, number: int, length: int, tail: list[int], max_tokens: int, salt: str, ignore_eos: bool) -> None:
        self.driven.submit(self.prompt(number, length, tail), max_tokens, salt=salt, ignore_eos=ignore_eos)

    @rule(
        stem=st.tuples(NUMBERS, st.integers(0, 8), TAILS),
        tails=st.lists(TAILS, min_size=2, max_size=5),
        max_tokens=st.sampled_from([0, 1, 10, 20, 40]),
        priority=st.integers(-1, 1),
        salt=SALTS,
    )
    def submit_some_of_one_prefix(
        self, stem: tuple[int, int, list[int]], tails: list[list[int]], max_tokens: int, priority: int, salt: str
    ) -> None:
        """Together they often want more pages than there are."""
        prefix = self.prompt(*stem)
        for place, tail in enumerate(tails):
            self.driven.submit([*prefix, *tail[:4]], max_tokens, salt=salt, priority=priority * place)

    @rule(number=NUMBERS, length=LENGTHS, tail=TAILS, max_tokens=st.integers(0, 3))
    def submit_for_prompt_logprobs(self, number: int, length: int, tail: list[int], max_tokens: int) -> None:
        self.driven.submit(self.prompt(number, length, tail), max_tokens, prompt_logprobs=0)

    @rule(excess=st.integers(1, 9))
    def submit_too_long(self, excess: int) -> None:
        uid = self.driven.submit([20] * (self.driven.scheduler.limits.pool_len + excess), 1)
        assert self.driven.finished[uid].finish_reason == "error"

    @rule(number=NUMBERS)
    def abort(self, number: int) -> None:
        """Whatever state it is in, or nobody's."""
        num_known = len(self.driven.prompts)
        self.driven.abort(num_known - 1 - number % (num_known + 1))

    @rule(number=NUMBERS, num_tokens=st.integers(0, 20))
    def finish_by_a_stop_string(self, number: int, num_tokens: int) -> None:
        uids = [uid for uid, out in self.driven.tokens.items() if out and uid not in self.driven.finished]
        if uids:
            uid = uids[-1 - number % len(uids)]
            self.driven.finish(uid, min(num_tokens, len(self.driven.tokens[uid])))

    # ---- batches

    @precondition(lambda self: len(self.driven.in_flight) < 2)
    @rule()
    def plan(self) -> None:
        self.driven.plan()

    @precondition(lambda self: self.driven.in_flight)
    @rule()
    def commit(self) -> None:
        self.driven.commit()

    @rule(num_turns=st.sampled_from([2, 5, 15]))
    def go_on(self, num_turns: int) -> None:
        """Turns of the loop."""
        for _ in range(num_turns):
            while len(self.driven.in_flight) > self.driven.options["overlap"]:
                self.driven.commit()
            self.driven.plan()

    @rule(token=st.none() | st.integers(3, 250))
    def fail_the_next_batch(self, token: int | None) -> None:
        """All of it, or the rows that would sample one of a few tokens."""
        if token is None:
            self.driven.engine.fail_steps.add(self.driven.scheduler._step)
        else:
            self.driven.engine.fail_tokens = frozenset(range(token, 251, 5))

    @rule(changes=st.fixed_dictionaries({}, optional=QUEUES))
    def change_policy(self, changes: dict[str, object]) -> None:
        self.direct.release_all()
        self.driven.change_policy(**changes)

    # ---- the cache

    @rule()
    def flush(self) -> None:
        self.driven.purge((), None)
        assert self.driven.cache.size_info.evictable_size == 0

    @rule(salt=SALTS)
    def purge_a_namespace(self, salt: str) -> None:
        self.driven.purge((), salt)

    @rule(number=NUMBERS, length=st.integers(1, 30), salt=st.none() | SALTS)
    def purge_a_prefix(self, number: int, length: int, salt: str | None) -> None:
        self.driven.purge(self.prompt(number, length, [20])[:length], salt)

    @rule(number=NUMBERS, tail=TAILS, salt=SALTS)
    def probe(self, number: int, tail: list[int], salt: str) -> None:
        self.direct.probe(self.prompt(number, 40, tail), Namespace(salt))

    @rule()
    def stats(self) -> None:
        stats = self.driven.stats()
        open_uids = self.driven.prompts.keys() - self.driven.finished.keys() - self.driven.promises.cut.keys()
        assert stats.num_running + stats.num_waiting == len(open_uids)

    @rule(number=NUMBERS, tail=TAILS, namespace=SPACES, priority=st.integers(-1, 1))
    def insert(self, number: int, tail: list[int], namespace: Namespace, priority: int) -> None:
        self.inserted = [*self.inserted[-2:], self.prompt(number, 30, tail)]
        self.direct.insert(self.inserted[-1], namespace, priority)

    @rule(number=NUMBERS, length=LENGTHS, tail=TAILS, namespace=SPACES)
    def match(self, number: int, length: int, tail: list[int], namespace: Namespace) -> None:
        self.direct.match(self.prompt(number, length, tail), namespace)

    @rule(num_pages=st.integers(0, 9), trim=st.booleans())
    def evict(self, num_pages: int, trim: bool) -> None:
        self.direct.evict(num_pages, trim)

    @precondition(lambda self: self.driven.options["reserve"] == "full")
    @rule(number=NUMBERS, length=LENGTHS, tail=TAILS, namespace=SPACES)
    def lock(self, number: int, length: int, tail: list[int], namespace: Namespace) -> None:
        self.direct.lock(self.prompt(number, length, tail), namespace)

    @precondition(lambda self: self.direct.locked)
    @rule(number=NUMBERS)
    def unlock(self, number: int) -> None:
        self.direct.unlock(number)

    # ---- watches of nobody: only under a policy that does not want to know every watch that changes

    @precondition(lambda self: self.may_watch)
    @rule(number=NUMBERS, length=LENGTHS, tail=TAILS, namespace=SPACES)
    def watch(self, number: int, length: int, tail: list[int], namespace: Namespace) -> None:
        self.direct.watch(self.prompt(number, length, tail), namespace)

    @precondition(lambda self: self.driven.watched)
    @rule(number=NUMBERS)
    def unwatch(self, number: int) -> None:
        self.direct.unwatch(number)

    @precondition(lambda self: self.driven.watched)
    @rule(number=NUMBERS, expected=st.booleans())
    def expect(self, number: int, expected: bool) -> None:
        self.direct.expect(number, expected)

    @precondition(lambda self: self.may_watch)
    @rule(budget=st.sampled_from([0, 1, 2, 1000]))
    def advance(self, budget: int) -> None:
        self.direct.advance(budget)

    @property
    def may_watch(self) -> bool:
        return not POLICIES[self.driven.options["policy"]].follows_cache

    def prompt(self, number: int, length: int, tail: Sequence[int]) -> list[int]:
        """The beginning of an earlier text and `tail`; no longer than fits."""
        texts = [prompt + self.driven.tokens[uid] for uid, prompt in self.driven.prompts.items()] + self.inserted
        text = texts[-1 - number % len(texts)] if texts else []
        return [*text[: min(length, self.driven.scheduler.limits.pool_len - len(tail))], *tail]

    @invariant()
    def hold(self) -> None:
        self.driven.check()
        type(self).num_steps += 1

    def teardown(self) -> None:
        if hasattr(self, "direct"):
            self.direct.release_all()
            self.driven.drain()
            self.driven.check()
            type(self).num_returns += self.driven.promises.num_returns
            type(self).num_predicted += self.driven.num_predicted


TestSchedulerMachine = SchedulerMachine.TestCase
TestSchedulerMachine.settings = settings(max_examples=40, stateful_step_count=50, deadline=None, derandomize=True)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_fifty_thousand_steps() -> None:
    class Machine(SchedulerMachine):
        pass

    while Machine.num_steps < 50_000:
        run_state_machine_as_test(Machine, settings=settings(max_examples=200, stateful_step_count=100, deadline=None))
    assert Machine.num_returns > 100, "pages hardly ever ran out"
    assert Machine.num_predicted > 1_000, "hardly any eviction was compared with the slow account"

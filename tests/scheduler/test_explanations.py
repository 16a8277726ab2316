"""Why a request's prompt was computed, or not: right cause and place for made-up misses of every kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.kv_oracle import VOCAB, reference
from support.serving import Serving

from minisgl.core import CAUSES, Explanation, ForwardInput
from minisgl.message import ExplainMsg, ExplainReply, TokenReply
from minisgl.scheduler.config import SchedulerConfig
from minisgl.utils.math import align_down

Tokens = list[int]
EACH = range(30)
MANY_PAGES = 640


def tokens(count: int, first: int = 3, step: int = 7) -> Tokens:
    return [3 + (first + i * step) % (VOCAB - 3) for i in range(count)]


def explain(serving: Serving, prompt: Tokens, salt: str = "", **params: Any) -> Explanation:
    """Serve this prompt, and nothing else; what is said of it, also when asked before."""
    asked = ask(serving, prompt, salt)
    uid = serving.submit(prompt, 1, salt, **params)
    serving.run()
    found = serving.explanations[uid]
    if "prompt_logprobs" not in params:
        assert timeless(asked) == timeless(found)
    return found


def ask(serving: Serving, prompt: Tokens, salt: str = "") -> Explanation:
    serving.scheduler.receive([ExplainMsg(7, np.array(prompt, np.int32), salt)])
    (reply,) = serving.scheduler.take_replies()
    assert isinstance(reply, ExplainReply)
    assert reply.uid == 7
    return reply.answer


def timeless(found: Explanation) -> tuple[Any, ...]:
    return found.causes, found.left_at, found.branch, found.evicted_tokens


def causes(found: Explanation) -> dict[str, int]:
    return {cause: num_tokens for cause, num_tokens in found.causes.items() if num_tokens}


# ---- one of each, by hand


def test_a_prompt_of_20_tokens_sent_twice() -> None:
    for page_size, expected in (
        (1, {"hit": 19, "last_token": 1}),
        (4, {"hit": 16, "last_token": 4}),
        (16, {"hit": 16, "below_page": 3, "last_token": 1}),
        (32, {"below_page": 19, "last_token": 1}),
    ):
        serving = Serving(MANY_PAGES // page_size, page_size)
        assert causes(explain(serving, tokens(20))) == {"never_seen": 20}
        found = explain(serving, tokens(20))
        assert (causes(found), found.left_at, found.branch) == (expected, 20, ())


def test_where_a_prompt_leaves_what_came_closest_and_how_that_goes_on() -> None:
    for page_size, expected in (
        (1, {"hit": 19, "never_seen": 11}),
        (16, {"hit": 16, "below_page": 3, "never_seen": 11}),
    ):
        serving = Serving(MANY_PAGES // page_size, page_size)
        earlier = tokens(40)
        explain(serving, earlier)
        found = explain(serving, [*earlier[:19], 2, *earlier[20:30]])
        assert (causes(found), found.left_at, found.branch) == (expected, 19, tuple(earlier[19:27]))


def test_an_evicted_prompt_says_when_it_went() -> None:
    for page_size in (1, 16):
        serving = Serving(64 // page_size, page_size)
        first, second = tokens(48, first=5), tokens(48, first=6)
        explain(serving, first)
        explain(serving, second)  # evicts 32 of the first from its end
        found = explain(serving, [*first, 2])
        assert causes(found) == {"hit": 16, "evicted": 32, "never_seen": 1}
        assert (found.left_at, found.evicted_tokens) == (48, 0)
        assert found.evicted_s is not None
        assert found.evicted_s >= 0


def test_what_others_have_is_another_cause_and_tells_nothing_of_it() -> None:
    for page_size, expected in (
        (1, {"other_namespace": 19, "last_token": 1}),
        (16, {"other_namespace": 16, "never_seen": 4}),
    ):
        serving = Serving(MANY_PAGES // page_size, page_size)
        explain(serving, tokens(20), salt="a")
        found = explain(serving, tokens(20), salt="b")
        assert (causes(found), found.left_at, found.branch) == (expected, 0, ())


@pytest.mark.parametrize("page_size", [1, 16])
def test_one_that_waited_for_another_joined_it(page_size: int) -> None:
    serving = Serving(MANY_PAGES // page_size, page_size)
    explain(serving, tokens(32))
    leader, follower = [serving.submit(tokens(80) + tail, 1) for tail in ([1, 1], [2, 2])]
    serving.run()
    assert causes(serving.explanations[leader]) == {"hit": 32, "never_seen": 50}
    assert causes(serving.explanations[follower]) == {"hit": 32, "joined": 48, "never_seen": 2}


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("num_shared", [64, 80, 128, 200])
def test_what_was_computed_in_several_chunks_was_joined_as_a_whole(
    num_shared: int, page_size: int, overlap: bool
) -> None:
    """The chunks of the leader take all the room of a step, so followers come up when most of it is stored already."""
    serving = Serving(MANY_PAGES // page_size, page_size, max_extend_tokens=64, overlap=overlap)
    explain(serving, tokens(32))
    leader, *followers = [serving.submit([*tokens(num_shared), first, first], 1) for first in range(1, 5)]
    serving.run()
    joined = num_shared // page_size * page_size - 32
    assert causes(serving.explanations[leader]) == {"hit": 32, "never_seen": num_shared - 30}
    for follower in followers:
        found = causes(serving.explanations[follower])
        below_page = num_shared - joined - 32
        assert found == {"hit": 32, "joined": joined, "never_seen": 2} | (
            {"below_page": below_page} if below_page else {}
        )


def test_a_follower_of_a_follower_joined_both() -> None:
    serving = Serving(max_extend_tokens=64, num_pages=MANY_PAGES, max_seq_len=512)
    lengths = (120, 240, 360)
    first, second, third = [serving.submit([*tokens(length), 9, 1], 1) for length in lengths]
    serving.run()
    assert causes(serving.explanations[first]) == {"never_seen": 122}
    assert causes(serving.explanations[second]) == {"joined": 120, "never_seen": 122}
    assert causes(serving.explanations[third]) == {"joined": 240, "never_seen": 122}


def test_what_was_lost_and_computed_anew_while_one_waited_was_joined() -> None:
    serving = Serving(max_running_req=1)
    explain(serving, tokens(40))
    serving.submit(tokens(8, 5), 10)
    serving.step()
    uids = [serving.submit([*tokens(40), tail], 1) for tail in (7, 8)]
    serving.step()
    serving.purge(tokens(16))
    serving.run()
    assert causes(serving.explanations[uids[0]]) == {"never_seen": 41}
    assert causes(serving.explanations[uids[1]]) == {"joined": 40, "never_seen": 1}


def test_a_prompt_whose_log_probabilities_are_wanted_is_not_looked_up() -> None:
    serving = Serving()
    explain(serving, tokens(20))
    assert causes(explain(serving, tokens(20), prompt_logprobs=0)) == {"not_looked_up": 20}


def test_nor_is_any_where_nothing_is_kept() -> None:
    serving = Serving(cache_type="naive")
    for _ in range(2):
        assert causes(explain(serving, tokens(20))) == {"not_looked_up": 20}


def test_a_prompt_is_explained_by_its_first_admission() -> None:
    serving = Serving(num_pages=2 * 19 - 1, reserve="stingy")
    uids = [serving.submit(tokens(10, first), 10) for first in (1, 2)]
    serving.run()
    assert serving.scheduler.stats().num_retracted > 0
    assert [causes(serving.explanations[uid]) for uid in uids] == [{"never_seen": 10}] * 2


# ---- thirty of each, made from a seed


class Made:
    """A server, and prompts that have nothing in common with each other unless it is said."""

    def __init__(self, page_size: int, seed: int, num_pages: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.page_size = page_size
        self.serving = Serving(num_pages, page_size, ghost_tokens=1 << 20)
        self.explain = lambda prompt, salt="": explain(self.serving, prompt, salt)
        self._num_made = seed

    def prompt(self, length: int | None = None) -> Tokens:
        """Of 2 to 60 tokens, more than a page, unless the length is given."""
        self._num_made += 1
        length = int(self.rng.integers(self.page_size + 2, 61)) if length is None else length
        return [10 + self._num_made, *self.rng.integers(100, VOCAB, length - 1).tolist()]

    def cut(self, prompt: Tokens) -> int:
        """Somewhere inside it."""
        return int(self.rng.integers(1, len(prompt)))

    def whole(self, length: int) -> int:
        return align_down(length, self.page_size)


def a_hit(made: Made) -> tuple[Explanation, dict[str, int], int]:
    earlier = made.prompt()
    made.explain(earlier)
    shared = made.cut(earlier)
    found = made.explain([*earlier[:shared], 5, 6])
    whole = made.whole(shared)
    return found, {"hit": whole, "below_page": shared - whole, "never_seen": 2}, shared


def an_eviction(made: Made) -> tuple[Explanation, dict[str, int], int]:
    earlier = made.prompt()
    made.explain(earlier)
    while made.serving.manager.probe(np.array([*earlier, 5], np.int32)):
        made.explain(made.prompt())
    shared = made.cut(earlier)
    found = made.explain([*earlier[:shared], 5, 6])
    whole = made.whole(shared)
    return found, {"evicted": whole, "below_page": shared - whole, "never_seen": 2}, shared


def a_last_token(made: Made) -> tuple[Explanation, dict[str, int], int]:
    earlier = made.prompt()
    made.explain(earlier)
    size = int(made.rng.integers(1, len(earlier) // made.page_size + 1)) * made.page_size
    found = made.explain(earlier[:size])
    return found, {"hit": size - made.page_size, "last_token": made.page_size}, size


def a_part_of_a_page(made: Made) -> tuple[Explanation, dict[str, int], int]:
    """All of it is known, and the last tokens are in no page of their own."""
    earlier = made.prompt()
    made.explain(earlier)
    shared = made.cut(earlier)
    shared += shared % made.page_size == 0  # at a page size of one that cannot be had
    whole = made.whole(shared - 1)
    rest = {"last_token": 1, "below_page": shared - whole - 1}
    return made.explain(earlier[:shared]), {"hit": whole, **rest}, shared


def another_namespace(made: Made) -> tuple[Explanation, dict[str, int], int]:
    earlier = made.prompt()
    made.explain(earlier, "theirs")
    shared = made.cut(earlier)
    found = made.explain([*earlier[:shared], 5, 6], "ours")
    whole = made.whole(shared)
    return found, {"other_namespace": whole, "never_seen": shared + 2 - whole}, 0


def nothing_like_it(made: Made) -> tuple[Explanation, dict[str, int], int]:
    prompt = made.prompt(int(made.rng.integers(1, 60)))
    return made.explain(prompt), {"never_seen": len(prompt)}, 0


def a_join(made: Made) -> tuple[Explanation, dict[str, int], int]:
    """Half of what is left, or 32 tokens, is worth a step."""
    start = made.prompt(made.page_size + 1)
    made.explain(start)
    cached = made.whole(len(start))
    common = [*start, *made.prompt(made.page_size * int(made.rng.integers(2, 4)) + 34)]
    uids = [made.serving.submit([*common, tail], 1) for tail in (5, 6)]
    made.serving.run()
    whole = made.whole(len(common))
    found = made.serving.explanations[uids[1]]
    expected = {"hit": cached, "joined": whole - cached, "below_page": len(common) - whole, "never_seen": 1}
    return found, expected, len(common)


KINDS = [a_hit, an_eviction, a_last_token, a_part_of_a_page, another_namespace, nothing_like_it, a_join]


@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("make", KINDS)
def test_thirty_made_up_prompts_have_the_right_causes_and_the_right_place(
    make: Callable[[Made], tuple[Explanation, dict[str, int], int]], page_size: int
) -> None:
    made = Made(page_size, seed=0, num_pages=(128 if make is an_eviction else 4096) // page_size)
    for _ in EACH:
        found, expected, left_at = make(made)
        assert causes(found) == {cause: number for cause, number in expected.items() if number}
        assert found.left_at == left_at


# ---- how it is told


def test_who_asks_is_told_before_the_batch_is_computed() -> None:
    serving = Serving(page_size=4)
    explain(serving, tokens(20))
    sent: list[TokenReply] = []
    forward = serving.loop._forward

    def spy(forward_input: ForwardInput) -> Any:
        sent.extend(reply for reply in serving.outbox.receive(timeout=0) if isinstance(reply, TokenReply))
        return forward(forward_input)

    serving.loop._forward = spy
    uid = serving.submit(tokens(22), 3, explain=True)
    quiet = serving.submit(tokens(22, first=9), 3)
    serving.run()
    (first,) = [reply for reply in sent if reply.uid == uid and reply.explanation]
    assert (first.token_ids, first.finish_reason, first.cached_len) == ((), None, 20)
    assert first.queue_s is not None
    assert causes(first.explanation) == {"hit": 20, "never_seen": 2}
    assert [reply for reply in sent if reply.uid == quiet and reply.cached_len is not None] == []
    assert serving.cached_len == {0: 0, quiet: 0}  # it was told the one that asked once
    assert causes(serving.explanations[quiet]) == {"never_seen": 22}


def test_its_later_news_is_the_same_as_ever() -> None:
    serving = Serving()
    uid = serving.submit([5], 4, explain=True, prompt_logprobs=0)
    replies: list[TokenReply] = []
    take = serving._take
    serving._take = lambda reply: (replies.append(reply), take(reply))[1]  # type: ignore[method-assign]
    serving.run()
    assert serving.tokens[uid] == reference([5], 4)
    assert [reply.prompt_logprobs for reply in replies][:2] == [None, (None,)]
    assert [reply.explanation is not None for reply in replies] == [True] + [False] * (len(replies) - 1)


@pytest.mark.parametrize("overlap", [False, True])
def test_one_that_is_aborted_right_after_is_told_its_end(overlap: bool) -> None:
    serving = Serving(overlap=overlap)
    uid = serving.submit(tokens(5), 4, explain=True)
    serving.step()
    serving.abort(uid)
    serving.run()
    assert serving.finished[uid].finish_reason == "abort"
    assert causes(serving.explanations[uid]) == {"never_seen": 5}


def test_one_that_never_ran_has_no_explanation() -> None:
    serving = Serving()
    serving.abort(serving.submit(tokens(5), 4, explain=True))
    serving.run()
    assert serving.explanations == {}
    assert serving.scheduler.stats().causes == dict.fromkeys(CAUSES, 0)


def test_tokens_are_counted_by_cause() -> None:
    serving = Serving(page_size=16)
    found = [explain(serving, tokens(length)) for length in (20, 20, 33, 48)]
    totals = serving.scheduler.stats().causes
    assert totals == {cause: sum(getattr(each, cause) for each in found) for cause in CAUSES}
    assert totals["hit"] == serving.scheduler.stats().hit_tokens > 0


def test_a_question_changes_nothing() -> None:
    serving = Serving(num_pages=64)
    for first in (1, 2):
        explain(serving, tokens(30, first))
    runs = [*serving.manager.prefix_cache.runs(4)]
    for length in (1, 10, 30, 40):
        ask(serving, tokens(length, 1))
    assert str([*serving.manager.prefix_cache.runs(4)]) == str(runs)
    explain(serving, tokens(30, 3))  # so the first one's pages go, though it was asked about
    assert ask(serving, tokens(30, 1)).evicted > 0


@pytest.mark.parametrize("steps", [1, 2])
def test_nothing_is_remembered_of_one_that_was_purged_while_it_ran(steps: int) -> None:
    serving = Serving(page_size=16)
    serving.submit(tokens(20), 4)
    for _ in range(steps):
        serving.step()
    serving.purge(tokens(3))
    serving.run()
    assert causes(ask(serving, tokens(20))) == {"never_seen": 20}


def test_where_nothing_is_explained_nothing_is_said() -> None:
    serving = Serving(ghost_tokens=None)
    uid = serving.submit(tokens(20), 2, explain=True)
    serving.run()
    assert serving.cached_len[uid] == 0
    assert serving.explanations == {}
    assert serving.scheduler.stats().causes == {}
    assert causes(ask(serving, tokens(20))) == {"not_looked_up": 20}


def test_no_prompt_has_no_causes() -> None:
    assert ask(Serving(), []) == Explanation()


def test_as_much_is_remembered_as_the_pool_has_unless_it_is_said() -> None:
    assert SchedulerConfig().num_ghost_tokens(1000) == 1000
    assert SchedulerConfig().num_ghost_tokens(1 << 30) == 1 << 22
    assert SchedulerConfig(ghost_tokens=0).num_ghost_tokens(1000) == 0
    assert SchedulerConfig(ghost_tokens=1 << 30).num_ghost_tokens(1000) == 1 << 30
    assert SchedulerConfig(explain=False).num_ghost_tokens(1000) is None


def test_ghosts_without_explanations_are_refused() -> None:
    with pytest.raises(ValueError, match="ghost_tokens=5 does nothing with explain=False"):
        SchedulerConfig(explain=False, ghost_tokens=5)

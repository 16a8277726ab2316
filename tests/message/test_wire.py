"""Messages as bytes and back."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minisgl.core import SamplingParams, TokenLogprobs
from minisgl.core.picture import NodeUse, TreePath, TreePicture
from minisgl.message import (
    AbortMsg,
    CountReply,
    EngineFailed,
    EngineStats,
    FinishMsg,
    LoadProgress,
    NextTokens,
    NodeMsg,
    NodeReply,
    PathMsg,
    PathReply,
    ProbeMsg,
    PurgeMsg,
    ShutdownMsg,
    StatsMsg,
    StatsReply,
    TokenReply,
    TreeMsg,
    TreeReply,
    UserMsg,
)
from minisgl.message.wire import news_codec, request_codec

PARAMS = SamplingParams(
    temperature=0.5,
    stop=["a", "🦀"],
    stop_token_ids=[3],
    logit_bias={7: -1.5},
    seed=-(2**63),
    top_k=2**63 - 1,
    logprobs=2,
)
INFINITE = TokenLogprobs(5, -0.5, ((5, -0.5), (6, float("-inf"))))
REQUESTS = [AbortMsg(2), FinishMsg(3, 7), FinishMsg(4, 1), StatsMsg(5, recount=True), ShutdownMsg()]
NEWS = [
    TokenReply(1, (5,)),
    NextTokens([1, 2**40], [5, 7]),
    TokenReply(2, (5, 6), "stop", (INFINITE, INFINITE), 3, 0.25, (None, INFINITE)),
    StatsReply(3, EngineStats(num_running=4, uptime_s=1.5)),
    CountReply(5, 36),
    TokenReply(4, finish_reason="error", error="NaN 🦀"),
    LoadProgress("weights"),
    EngineFailed("no such file", by_user=True),
]


def test_everything_comes_back_as_it_was_and_in_order() -> None:
    assert request_codec().decode(request_codec().encode(REQUESTS)) == REQUESTS
    assert news_codec().decode(news_codec().encode(NEWS)) == NEWS


def test_a_request_comes_back_with_its_array_and_checked_params() -> None:
    sent = UserMsg(
        2**40, np.array([0, 7, 2**31 - 1], np.int32), PARAMS, seed=2**63 - 1, cache_salt="ten\u0000ant", priority=-3
    )
    (got,) = request_codec().decode(request_codec().encode([sent]))
    assert isinstance(got, UserMsg)
    assert got.input_ids.tolist() == sent.input_ids.tolist()
    assert got.input_ids.dtype == np.int32
    got.input_ids[0] = 1  # the receiver owns it
    assert (got.uid, got.sampling_params, got.seed) == (sent.uid, PARAMS, sent.seed)
    assert (got.cache_salt, got.priority) == (sent.cache_salt, -3)
    assert got.sampling_params.stop == ("a", "🦀")


def test_questions_about_prefixes_come_back_with_their_arrays() -> None:
    ids = np.array([0, 7], np.int32)
    probe, one, every = request_codec().decode(
        request_codec().encode([ProbeMsg(1, ids, "a"), PurgeMsg(2, ids, ""), PurgeMsg(3, ids[:0])])
    )
    assert isinstance(probe, ProbeMsg)
    assert (probe.uid, probe.input_ids.tolist(), probe.cache_salt) == (1, [0, 7], "a")
    assert isinstance(one, PurgeMsg)
    assert isinstance(every, PurgeMsg)
    assert (one.prefix.tolist(), one.cache_salt) == ([0, 7], "")
    assert (every.prefix.tolist(), every.cache_salt) == ([], None)


def test_questions_about_the_tree_come_back_and_so_do_pictures_of_it() -> None:
    ids = np.array([0, 7], np.int32)
    tree, below, node, path = request_codec().decode(
        request_codec().encode([TreeMsg(1, None, 9, 2), TreeMsg(2, 2**40), NodeMsg(3, 5, 6), PathMsg(4, ids, "a")])
    )
    assert isinstance(tree, TreeMsg)
    assert isinstance(below, TreeMsg)
    assert isinstance(node, NodeMsg)
    assert isinstance(path, PathMsg)
    assert (tree.node, tree.max_nodes, tree.head_len, below.node) == (None, 9, 2, 2**40)
    assert (node.node, node.tail_len, path.input_ids.tolist(), path.cache_salt) == (5, 6, [0, 7], "a")
    picture = TreePicture(1, 2, 3, 4, 5, [1], [2**40], np.arange(9, dtype=np.int32), ids, ids, ["salt"])
    use = NodeUse(4, 3, 2, 1, [8], [9], ids, ["decode"])
    news = [TreeReply(1, picture), TreeReply(2, None), NodeReply(3, use), PathReply(4, TreePath([1, 2], 3))]
    told, gone, used, placed = (reply.answer for reply in news_codec().decode(news_codec().encode(news)))
    assert isinstance(told, TreePicture)
    assert (told.ids, told.above, told.salts, told.columns()) == ([2**40], [1], ["salt"], picture.columns())
    assert gone is None
    assert isinstance(used, NodeUse)
    assert (used.users, used.waiting, used.states, used.tail.tolist()) == ([8], [9], ["decode"], [0, 7])
    assert placed == TreePath([1, 2], 3)


def test_params_that_are_not_allowed_are_refused_where_they_arrive() -> None:
    good = request_codec().encode([UserMsg(1, np.zeros(1, np.int32), SamplingParams(top_p=0.125), 0)])
    bad = good.replace(np.array(0.125, ">f8").tobytes(), np.array(1.125, ">f8").tobytes())
    with pytest.raises(ValueError, match=r"top_p=1\.125 is not in"):
        request_codec().decode(bad)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (b"", "0 bytes .* truncated"),
        (b"\xc1", "malformed"),
        (b"\x90\x90", "trailing"),
        (b"\x80", "Expected `array`"),
        (pickle.dumps([1, 2]), "cannot be read"),
        (b"\x91\x92\xa9Surprises\x90", "unknown type 'Surprises'; known are UserMsg"),
        (b"\x91\x92\xa8AbortMsg\x91\x81\xa3uid\xa1x", r"Expected `int`, got `str` - at `\$\[0\]\.uid`"),
        (b"\x91\x92\xa8AbortMsg\x91\x80", "missing required field `uid`"),
    ],
)
def test_bytes_that_are_no_messages_are_an_error_that_says_where(frame: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        request_codec().decode(frame)


def test_token_ids_of_half_a_number_are_refused() -> None:
    frame = request_codec().encode([UserMsg(1, np.zeros(2, np.int32), SamplingParams(), 0)])
    with pytest.raises(ValueError, match="token ids are not bytes"):
        request_codec().decode(frame.replace(b"\xc4\x08" + bytes(8), b"\xc4\x07" + bytes(7)))


def test_what_has_no_bytes_is_refused_before_it_is_sent() -> None:
    with pytest.raises(ValueError, match="surrogates"):
        request_codec().encode([UserMsg(1, np.zeros(1, np.int32), SamplingParams(), 0, cache_salt="\ud800")])
    with pytest.raises(ValueError, match="over 64 bits"):
        request_codec().encode([AbortMsg(2**70)])


@settings(max_examples=300, deadline=None, derandomize=True)
@given(data=st.data())
def test_a_damaged_frame_is_an_error_or_other_messages_but_never_a_crash(data: st.DataObject) -> None:
    frame = bytearray(news_codec().encode(NEWS))
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    try:
        messages = news_codec().decode(bytes(frame[: data.draw(st.integers(0, len(frame)))]))
    except ValueError:
        return
    assert all(type(message) in {type(known) for known in NEWS} for message in messages)

"""What is asked of an engine, and its answers. A question's uid is from the same numbers as those of requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from minisgl.core import Explanation
from minisgl.core.picture import NodeUse, TreePath, TreePicture
from minisgl.message.activity import Activity
from minisgl.message.stats import EngineStats
from minisgl.utils.arrays import Int32Array

AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, slots=True, eq=False)
class Question(Generic[AnswerT]):
    """What is answered once, between two steps, with an AnswerT."""

    uid: int


@dataclass(frozen=True, slots=True)
class StatsMsg(Question[EngineStats]):
    """Sizes and totals. recount: check every page, node, row and lock first; what is wrong ends the engine."""

    recount: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ProbeMsg(Question[int]):
    """How many tokens of this prompt a request would find cached now. Changes nothing, recency included."""

    input_ids: Int32Array
    cache_salt: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class ExplainMsg(Question[Explanation]):
    """Why the tokens of this prompt would be computed, or not, if it were admitted now. Changes nothing."""

    input_ids: Int32Array
    cache_salt: str = ""


@dataclass(frozen=True, slots=True)
class ActivityMsg(Question[Activity]):
    """What was done from step `since` on. The first one has steps recorded; 30 s without one end that."""

    since: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class PurgeMsg(Question[int]):
    """Nothing cached now that begins with `prefix` shall be matched again; running requests keep what they hold.

    prefix: [N] int32; of no tokens: everything. cache_salt: whose; None: everybody's. The answer is how
    many tokens were freed at once.
    """

    prefix: Int32Array
    cache_salt: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class SlowQuestion(Question[AnswerT]):
    """What takes longer than a step may be held up: it is worked on a little at every step."""


@dataclass(frozen=True, slots=True, eq=False)
class TreeMsg(SlowQuestion[TreePicture | None]):
    """The prefix cache's trees, or what is below a node; None if it is gone.

    max_nodes: at most so many nodes are told. head_len: so many of each one's first token ids.
    """

    node: int | None = None
    max_nodes: int = 1500
    head_len: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class NodeMsg(SlowQuestion[NodeUse | None]):
    """Who uses a node; None if it is gone. tail_len: so many of the last token ids of its path are told."""

    node: int
    tail_len: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class PathMsg(Question[TreePath]):
    """Where this prompt lies in the tree. Changes nothing."""

    input_ids: Int32Array
    cache_salt: str = ""


@dataclass(frozen=True, slots=True)
class Answer(Generic[AnswerT]):
    """uid: the question's."""

    uid: int
    answer: AnswerT


class StatsReply(Answer[EngineStats]):
    """To a StatsMsg."""


class CountReply(Answer[int]):
    """To a ProbeMsg or a PurgeMsg, in tokens."""


class ExplainReply(Answer[Explanation]):
    """To an ExplainMsg."""


class ActivityReply(Answer[Activity]):
    """To an ActivityMsg."""


class TreeReply(Answer[TreePicture | None]):
    """To a TreeMsg."""


class NodeReply(Answer[NodeUse | None]):
    """To a NodeMsg."""


class PathReply(Answer[TreePath]):
    """To a PathMsg."""

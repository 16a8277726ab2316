"""The processes of ranks 1 and up and the sockets to them, as rank 0 has them: all is there, or nothing is left."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from minisgl.llm.config import LLMConfig
from minisgl.llm.processes import made, new_folder, running, tell
from minisgl.message.plans import RankNews, RankOrder, order_codec, rank_news_codec
from minisgl.message.sockets import NEWS, SocketInbox, SocketOutbox

MODULE = "minisgl.llm.rank_process"


@dataclass(frozen=True, eq=False)
class RankChild:
    rank: int
    process: subprocess.Popen[bytes]
    outbox: SocketOutbox[RankOrder]

    def how_it_ended(self, code: int) -> str:
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return f"the process of rank {self.rank} ended: {how}"


@dataclass(frozen=True, eq=False)
class RankChildren:
    """inbox: what any of them says. folder: of the sockets, to be removed once all are connected."""

    ranks: list[RankChild]
    inbox: SocketInbox[RankNews]
    folder: Path


@contextlib.contextmanager
def running_ranks(config: LLMConfig, path: Path, size: int) -> Iterator[RankChildren]:
    """Ranks 1 .. size - 1 for the model at `path`, told their configuration; they have ended afterwards.

    OSError when one cannot be started, ValueError when the folder for temporary files has too long a path.
    """
    folder, ranks = new_folder(), range(1, size)
    kwargs = config.to_kwargs() | {"model": str(path)}
    with contextlib.ExitStack() as stack:
        threads = stack.enter_context(shared_cores(size))
        processes = [stack.enter_context(running(MODULE, folder, OMP_NUM_THREADS=threads)) for _ in ranks]
        stack.enter_context(made(folder))
        inbox = stack.enter_context(contextlib.closing(SocketInbox(folder / NEWS, rank_news_codec(), bind=True)))
        children = []
        for rank, process in zip(ranks, processes, strict=True):
            outbox = SocketOutbox(folder / plans_name(rank), order_codec(), bind=True)
            stack.enter_context(contextlib.closing(outbox))
            tell(process, {"rank": rank, "config": kwargs})
            children.append(RankChild(rank, process, outbox))
        yield RankChildren(children, inbox, folder)


def plans_name(rank: int) -> str:
    """Of a rank's socket in the folder."""
    return f"plans-{rank}"


@contextlib.contextmanager
def shared_cores(size: int) -> Iterator[str]:
    """How many threads each rank computes with, rank 0 included. A user's own OMP_NUM_THREADS is kept."""
    given, before = os.environ.get("OMP_NUM_THREADS"), torch.get_num_threads()
    share = max(before // size, 1)
    if given is None:
        torch.set_num_threads(share)
    try:
        yield given or str(share)
    finally:
        if given is None and torch.get_num_threads() == share:  # else another engine has put back more already
            torch.set_num_threads(before)

"""A rank above 0 in a process of its own: `python -m minisgl.llm.rank_process FOLDER`, which `Followers` starts.

It loads its share of the model, then computes what rank 0 plans, in the order in which it comes. How it hears its
configuration and ends with its parent is said in `lifeline`.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import torch

from minisgl.core import BatchOutput, ForwardInput
from minisgl.distributed import Meeting, TPInfo
from minisgl.engine.engine import Engine
from minisgl.engine.output import FailedOutput
from minisgl.llm.assembly import Model, read_model
from minisgl.llm.config import LLMConfig
from minisgl.llm.followers import LOAD_S, START_S
from minisgl.llm.lifeline import die_with_the_parent, hear
from minisgl.llm.rank_children import plans_name
from minisgl.message import ShutdownMsg
from minisgl.message.plans import (
    BatchFailed,
    GoOnMsg,
    JoinMsg,
    PlanMsg,
    PlanReader,
    RankFailed,
    RankNews,
    RankOrder,
    RankStarted,
    order_codec,
    rank_news_codec,
)
from minisgl.message.sockets import NEWS, SocketInbox, SocketOutbox, finish_sending
from minisgl.utils.garbage import settle
from minisgl.utils.logging import get_logger, install_handler

logger = get_logger("minisgl.llm.rank_process")  # run as a program, its __name__ is another


@dataclass(eq=False)
class RankProcess:
    """Everything that the process needs until it ends. engine: once it is loaded."""

    rank: int
    config: LLMConfig
    inbox: SocketInbox[RankOrder]
    outbox: SocketOutbox[RankNews]
    engine: Engine | None = None

    def run(self) -> int:
        """Load, compute until told to end. The exit code: 0, or 1 after saying what went wrong."""
        try:
            orders = self._orders()
            model = read_model(self.config, Path(self.config.engine.model), self.rank)
            self.outbox.send([RankStarted(self.rank)])
            join = next(orders, None)
            if join is None:
                return 0  # rank 0 has thought better of it
            assert isinstance(join, JoinMsg), join
            engine = self.engine = self._load(model, join)
        except (ValueError, OSError) as error:
            logger.debug("traceback of what rank 0 is told", exc_info=True)
            return self._fail(str(error), by_user=True)
        except Exception as error:
            logger.exception("rank %d could not be loaded", self.rank)
            return self._fail(f"{type(error).__name__}: {error}")
        settle()
        try:
            self._compute(engine, orders)
        except Exception as error:
            logger.exception("rank %d died", self.rank)
            return self._fail(f"{type(error).__name__}: {error}")
        return 0

    def _orders(self) -> Iterator[RankOrder]:
        """All that rank 0 says until it says that this is the end."""
        while True:
            for order in self.inbox.receive(None):
                if isinstance(order, ShutdownMsg):
                    return
                yield order

    def _load(self, model: Model, join: JoinMsg) -> Engine:
        die_with_the_parent()  # it has removed the folder
        size, device = model.spec.tp.size, model.spec.device
        if device.type == "cuda":
            torch.cuda.set_device(device)
        group = Meeting(join.port, START_S).join(self.rank, size, device, LOAD_S)
        return model.load(TPInfo(self.rank, size, group))

    def _compute(self, engine: Engine, orders: Iterator[RankOrder]) -> None:
        """Like rank 0's loop, a step is launched before the one before it is waited for."""
        reader = PlanReader()
        previous: BatchOutput | None = None
        for order in orders:
            assert isinstance(order, PlanMsg), order
            output = engine.forward(ForwardInput(reader.read(order)))
            if isinstance(output, FailedOutput):
                self._await_verdict(order.step, engine, orders)
            if previous is not None:
                previous.result()
            previous = output

    def _await_verdict(self, step: int, engine: Engine, orders: Iterator[RankOrder]) -> None:
        """Rank 0 says so if it failed in the same place; if not, this process is killed."""
        self.outbox.send([BatchFailed(self.rank, step, engine.spec.tp.joined.num_calls)])
        while not isinstance(next(orders, None), GoOnMsg | None):
            pass

    def _fail(self, error: str, by_user: bool = False) -> int:
        self.outbox.send([RankFailed(self.rank, error.encode(errors="backslashreplace").decode(), by_user)])
        return 1


def main() -> NoReturn:
    """Ends the process while the engine is there: taking it apart would wait for graphs that call NCCL."""
    folder = Path(sys.argv[1])
    heard = hear(folder)
    rank, config = heard["rank"], LLMConfig.from_kwargs(**heard["config"])
    install_handler()
    inbox = SocketInbox(folder / plans_name(rank), order_codec(), bind=False)
    outbox = SocketOutbox(folder / NEWS, rank_news_codec(), bind=False)
    with contextlib.closing(inbox), contextlib.closing(outbox):
        outbox.wait_for_inbox()
        process = RankProcess(rank, config, inbox, outbox)
        code = process.run()
    finish_sending()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()

"""An engine in a process of its own: `python -m minisgl.llm.engine_process FOLDER`, which `RemoteEngine` starts.

How it hears its configuration and ends with its parent is said in `lifeline`. FOLDER is removed here, once both sockets
are connected, before torch is imported.
"""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from minisgl.llm.config import LLMConfig
from minisgl.llm.lifeline import die_with_the_parent, hear, remove
from minisgl.message import EngineFailed, EngineInfo, EngineReady, LoadProgress, RequestMsg
from minisgl.message.sockets import NEWS, REQUESTS, SocketInbox, SocketOutbox, finish_sending
from minisgl.message.wire import News, news_codec, request_codec
from minisgl.utils.garbage import look_less_often, settle
from minisgl.utils.logging import get_logger, install_handler
from minisgl.utils.model_store import resolve_model

if TYPE_CHECKING:
    from minisgl.llm.assembly import Parts

logger = get_logger("minisgl.llm.engine_process")  # run as a program, its __name__ is another


@dataclass(frozen=True, eq=False)
class EngineProcess:
    """Everything that the process needs until it ends."""

    config: LLMConfig
    inbox: SocketInbox[RequestMsg]
    outbox: SocketOutbox[News]

    def run(self) -> int:
        """Load, say so, serve until told to end. The exit code: 0, or 1 after saying what went wrong."""
        try:
            parts, info = self._load()
        except (ValueError, OSError) as error:
            logger.debug("traceback of what the parent is told", exc_info=True)
            return self._fail(error, by_user=True)
        except Exception as error:
            logger.exception("the engine could not be loaded")
            return self._fail(error)
        parts.when_stuck(_give_up)
        settle()
        self.outbox.send([EngineReady(info)])
        from minisgl.scheduler.loop import Loop

        try:
            inbox, computing_s = parts.watched(self.inbox), parts.engine.computing_s
            Loop(parts.scheduler, parts.forward, inbox, self.outbox, parts.overlap, computing_s).run()
        except Exception as error:
            logger.exception("the engine died")
            self._fail(error)
            parts.end_trace()
            parts.kill_ranks()
            return 1
        parts.close()
        return 0

    def _load(self) -> tuple[Parts, EngineInfo]:
        self._progress("model files")
        engine = self.config.engine
        path = resolve_model(engine.model, need_weights=engine.load_format != "dummy")
        from minisgl.llm.assembly import assemble  # here, because torch takes a second, and what may fail comes first

        parts = assemble(self.config, path, self._progress)
        return parts, info_of(parts, self.config, path)

    def _progress(self, stage: str) -> None:
        self.outbox.send([LoadProgress(stage)])

    def _fail(self, error: Exception, by_user: bool = False) -> int:
        text = str(error) if by_user else f"{type(error).__name__}: {error}"
        self.outbox.send([EngineFailed(text.encode(errors="backslashreplace").decode(), by_user)])
        return 1


def info_of(parts: Parts, config: LLMConfig, path: Path) -> EngineInfo:
    """What became of the configuration."""
    spec, limits, scheduler = parts.engine.spec, parts.limits, config.scheduler
    return EngineInfo(
        model=config.engine.model,
        path=str(path),
        vocab_size=limits.vocab_size,
        max_seq_len=limits.max_seq_len,
        pool_len=limits.pool_len,
        page_size=spec.page_size,
        num_pages=parts.engine.num_pages,
        end_token_ids=tuple(sorted(parts.end_token_ids)),
        dtype=str(spec.dtype).removeprefix("torch."),
        device=str(spec.device) if spec.tp.size == 1 else f"{spec.tp.size} x {spec.device.type}",
        cache_type=scheduler.cache_type,
        overlap=parts.overlap,
        max_running_req=spec.max_running_req,
        max_extend_tokens=parts.max_extend_tokens,
        policy=scheduler.policy,
        max_overtakes=scheduler.max_overtakes,
        lookahead=scheduler.lookahead,
        eviction=scheduler.eviction,
        reserve=scheduler.reserve,
        heeds_priority=limits.heeds_priority,
        explains=limits.explains,
        pid=os.getpid(),
        sampling_defaults=parts.sampling_defaults,
        versions={name: _version(name) for name in ("minisgl", "torch", "transformers")},
    )


def main() -> int:
    look_less_often()
    folder = Path(sys.argv[1])
    config = LLMConfig.from_kwargs(**hear(folder))
    install_handler()
    inbox = SocketInbox(folder / REQUESTS, request_codec(), bind=False)
    outbox = SocketOutbox(folder / NEWS, news_codec(), bind=False)
    with contextlib.closing(inbox), contextlib.closing(outbox):
        outbox.wait_for_inbox()  # it connected after the other one
        remove(folder)  # connections need no names
        die_with_the_parent()
        code = EngineProcess(config, inbox, outbox).run()
    finish_sending()
    return code


def _give_up(reason: str) -> None:
    """The main thread waits for a device that will not answer, and the sockets are its own."""
    logger.critical("the engine died: %s", reason)
    os._exit(1)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # run from a folder, not installed
        return "unknown"


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # all is said: a GPU that still works, or waits for a rank that is gone, is not waited for

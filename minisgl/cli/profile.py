"""minisgl profile: a trace of what a running server does."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from minisgl.cli.activity_feed import ActivityFeed
from minisgl.cli.files import check_writable
from minisgl.cli.interrupt import Interrupt
from minisgl.cli.server_flags import DEFAULT_URL, ApiKey, Url, open_client
from minisgl.message import StepRecord
from minisgl.scheduler.trace import TraceFile
from minisgl.scheduler.trace_events import TraceEvents
from minisgl.server.schema.activity import ActivityNow
from minisgl.utils.progress import ProgressBar

MAX_S = 24 * 3600.0
POLL_S = 0.25  # 512 steps are kept: of 2 ms each they last a second


def run(
    url: Url = DEFAULT_URL,
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, max=MAX_S, help="How long to record.")] = 5.0,
    output: Annotated[Path, typer.Option("--output", help="The file to write.")] = Path("trace.json"),
    api_key: ApiKey = None,
) -> None:
    """Record what a running server's engine does, as a trace for Perfetto; Ctrl-C ends it early."""
    check_writable("--output", output)
    feed = ActivityFeed(open_client(url, api_key))
    profile, first = Profile(feed), feed.ask()
    with closing(TraceFile(output)) as file:
        profile.record(file, first, seconds)
    typer.echo(profile.summary())
    typer.echo(f"{output}: open it at https://ui.perfetto.dev")


@dataclass
class Profile:
    """What was recorded, and how much of it. trouble: why the last look at the server failed, if it did."""

    feed: ActivityFeed
    num_steps: int = 0
    num_requests: int = 0
    device_s: float = 0.0
    lasted_s: float = 0.0
    has_restarted: bool = False
    trouble: str | None = None

    def record(self, file: TraceFile, first: ActivityNow, seconds: float) -> None:
        """So many seconds, from that answer on; less if the server is started anew."""
        stats = first.stats
        events = TraceEvents(stats.num_pages * stats.page_size)
        file.write(events.beginning(request.now() for request in first.requests))
        self.num_requests = len(first.requests)
        for record in self._records(seconds, first.now_s):
            file.write(events.of(record))
            self._count(record)
        file.write(events.end())
        file.end()

    def summary(self) -> str:
        """A line for people."""
        share = self.device_s / self.lasted_s if self.lasted_s else 0.0
        line = (
            f"{self.num_steps:,} steps in {self.lasted_s:.1f} s, the device at work for {share:.0%} of it; "
            f"{self.num_requests:,} requests"
        )
        if self.feed.num_lost:
            line += f"; {self.feed.num_lost:,} steps were too many to be asked for in time and are missing"
        if self.trouble is not None:
            line += f"; it ends early: {self.trouble}"
        return line + ("; it ends where the server was started anew" if self.has_restarted else "")

    def _records(self, seconds: float, began_s: float) -> Iterator[StepRecord]:
        until = time.monotonic() + seconds
        with Interrupt() as interrupt, ProgressBar("recording", round(seconds), "s") as bar:
            while not interrupt.pressed and (left := until - time.monotonic()) > 0:
                time.sleep(min(POLL_S, left))
                try:
                    activity, self.trouble = self.feed.ask(), None
                except OSError as error:  # for a while, maybe
                    self.trouble = str(error)
                    continue
                if self.feed.has_restarted:
                    self.has_restarted = True
                    return
                self.lasted_s = activity.now_s - began_s
                bar.advance_to(round(self.lasted_s))
                yield from (step.record() for step in activity.steps)

    def _count(self, record: StepRecord) -> None:
        self.num_steps += 1
        self.num_requests += len(record.arrived)
        if record.device_s is not None:
            begin, end = record.device_s
            self.device_s += end - begin

"""How a server's start looks on a terminal: a clock while the model loads, then what became of it, and the address."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from minisgl import __version__
from minisgl.server.reporter import Reporter, facts_of

if TYPE_CHECKING:
    from minisgl.message import EngineInfo
    from minisgl.server.config import ServerConfig


def make_reporter(config: ServerConfig) -> Reporter:
    """For people when stderr is a terminal and they did not ask for JSON; else lines of the log."""
    if config.log_json or not sys.stderr.isatty():
        return Reporter(config.ui)
    return TerminalReporter(Console(stderr=True, highlight=False), config.ui)


class TerminalReporter(Reporter):
    """The start is drawn; everything later is a line of the log, as anywhere."""

    def __init__(self, console: Console, has_page: bool = True) -> None:
        super().__init__(has_page)
        self._console = console
        self._progress = Progress(
            SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=console, transient=True
        )

    def loading(self, address: str, model: str) -> None:
        self._model = model
        self._task = self._progress.add_task(f"loading {escape(model)}")
        self._progress.start()

    def progress(self, stage: str) -> None:
        self._progress.update(self._task, description=f"loading {escape(self._model)}: {escape(stage)}")

    def ready(self, address: str, model: str, info: EngineInfo, seconds: float) -> None:
        self._progress.stop()
        table = Table.grid(padding=(0, 2))
        for name, value in self._rows(address, model, info, seconds):
            table.add_row(f"[dim]{name}[/]", escape(value))
        self._console.print(Panel(table, title=f"minisgl {__version__}", expand=False))

    def close(self) -> None:
        self._progress.stop()

    def _rows(self, address: str, model: str, info: EngineInfo, seconds: float) -> list[tuple[str, str]]:
        """What to show: name and value."""
        return [
            ("model", f"{model}, loaded in {seconds:.1f} s"),
            *facts_of(info).items(),
            ("API", f"{address}/v1"),
            *([("page", f"{address}/")] if self._has_page else []),
            ("stop", "Ctrl-C"),
        ]

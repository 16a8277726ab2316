"""minisgl generate: one prompt streams to stdout; of many, each output is written in order as soon as it may be."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from minisgl.cli.files import check_writable
from minisgl.cli.interrupt import Interrupt, until_interrupted
from minisgl.cli.prompts import GivenPrompt, read_prompts, tokenize
from minisgl.cli.report import Output, Totals, choices_of, cut_at, error_of, is_utf8, json_line
from minisgl.cli.session import load_llm, printable, say_how_it_samples
from minisgl.core import SamplingParams
from minisgl.utils.output_file import errors_name
from minisgl.utils.progress import ProgressBar

if TYPE_CHECKING:
    from minisgl.llm import Delta

Write = Callable[[int, Output], None]


def run(
    config: dict[str, Any],
    sampling: dict[str, Any],
    prompts: Annotated[list[str] | None, typer.Argument(help="Texts to continue; - reads one from stdin.")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", help="More prompts, one a line; blank lines are skipped.")
    ] = None,
    chat: Annotated[
        bool, typer.Option("--chat/--raw", help="Each prompt is a user's message, or plain text to continue (default).")
    ] = False,
    jsonl: Annotated[bool, typer.Option("--jsonl", help="One JSON object a line instead of text.")] = False,
    output: Annotated[Path | None, typer.Option("--output", help="Write the JSON lines to this file.")] = None,
) -> None:
    """Generate text; a summary goes to stderr. Exits with 1 when a prompt failed, 130 after Ctrl-C."""
    given = read_prompts(prompts or [], file)
    params = SamplingParams(**sampling)
    check_writable("--output", output)
    with load_llm(config) as llm:
        say_how_it_samples(sampling, llm.sampling_defaults)
        deltas = llm.generate(tokenize(llm, given, params, chat), params, stream=True)
        with _open_output(output) as sink:  # what it held is gone from here, so all that may be refused comes before
            job = _Job(given, sink, params, as_json=jsonl or output is not None)
            interrupted = job.run(deltas)
    if interrupted or job.totals.num_failed:
        raise typer.Exit(130 if interrupted else 1)


class _Job:
    """The prompts, where their outputs go, and how far it is. Outputs that finish early wait for those before."""

    def __init__(self, prompts: list[GivenPrompt], sink: IO[str], params: SamplingParams, *, as_json: bool) -> None:
        self.prompts = prompts
        self.totals = Totals()
        self._sink, self._max_tokens = sink, params.max_tokens
        self._streams = len(prompts) == params.n == 1 and not as_json
        self._write: Write = self._write_json if as_json else self._write_text
        self._waiting: dict[int, Output] = {}
        self._next = 0

    def run(self, deltas: Generator[Delta]) -> bool:
        """Write all that is generated; whether Ctrl-C cut it short."""
        started = time.perf_counter()
        with Interrupt() as interrupt, self._progress_bar() as bar:
            for delta in until_interrupted(deltas, interrupt):
                self._take(delta, bar)
        self._flush()
        typer.echo(self.totals.line(time.perf_counter() - started), err=True)
        return interrupt.pressed

    def _take(self, delta: Delta, bar: ProgressBar) -> None:
        if self._streams:
            self._show(delta["text"])
        if (output := delta.get("output")) is not None:
            bar.advance()
            self.totals.add(output)
            self._waiting[delta["index"]] = output
            while self._next in self._waiting:
                self._end(self._next)
                self._next += 1

    def _flush(self) -> None:
        """After Ctrl-C: what finished behind a prompt that did not."""
        for index in sorted(self._waiting):
            self._end(index)

    def _end(self, index: int) -> None:
        output = self._waiting.pop(index)
        self._write(index, output)
        if (length := cut_at(output, self._max_tokens)) is not None:
            note = f"cut after {length} of {self._max_tokens} tokens: the context or the KV pool holds no more"
            typer.secho(f"{self.prompts[index].where}: {note}", fg="yellow", err=True)

    def _write_json(self, index: int, output: Output) -> None:
        record = {"index": index, "prompt": self.prompts[index].text, **output}
        self._sink.write(json_line(record, only_ascii=not is_utf8(self._sink)) + "\n")
        self._sink.flush()

    def _write_text(self, index: int, output: Output) -> None:
        if (error := error_of(output)) is not None:
            typer.secho(f"error: {self.prompts[index].where}: {error}", fg="red", err=True)
        elif self._streams:
            self._show("\n")
        else:
            texts = [choice["text"] for choice in choices_of(output)]
            self._show("\n".join([f"[{index + 1}] {self.prompts[index].text}", *texts]) + "\n\n")

    def _show(self, text: str) -> None:
        self._sink.write(printable(text) if self._sink.isatty() else text)
        self._sink.flush()

    def _progress_bar(self) -> ProgressBar:
        """Not between outputs shown on the same terminal, nor for a single prompt."""
        is_useless = len(self.prompts) == 1 or self._sink.isatty()
        return ProgressBar("generating", len(self.prompts), "prompts", is_hidden=is_useless)


@contextlib.contextmanager
def _open_output(path: Path | None) -> Iterator[IO[str]]:
    if path is None:
        with errors_name(Path("standard output")):
            yield sys.stdout
        return
    with errors_name(path), path.open("w", encoding="utf-8") as sink:
        yield sink

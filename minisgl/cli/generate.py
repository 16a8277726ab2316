"""minisgl generate: one prompt streams to stdout; of many, each output is written in order as soon as it may be."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer
from tqdm import tqdm

from minisgl.cli.interrupt import Interrupt, until_interrupted
from minisgl.cli.report import Output, Totals, choices_of, json_line
from minisgl.cli.session import load_llm, printable
from minisgl.core import SamplingParams

if TYPE_CHECKING:
    from minisgl.llm import LLM, Delta
    from minisgl.llm.client import Prompt

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
    texts = _read_prompts(prompts or [], file)
    params = SamplingParams(**sampling)
    with _open_output(output) as sink, load_llm(config) as llm:
        job = _Job(texts, sink, as_json=jsonl or output is not None, num_choices=params.n)
        interrupted = job.run(llm, params, chat)
    if interrupted or job.totals.num_failed:
        raise typer.Exit(130 if interrupted else 1)


class _Job:
    """The prompts, where their outputs go, and how far it is. Outputs that finish early wait for those before."""

    def __init__(self, prompts: list[str], sink: IO[str], *, as_json: bool, num_choices: int) -> None:
        self.prompts = prompts
        self.totals = Totals()
        self._sink = sink
        self._streams = len(prompts) == num_choices == 1 and not as_json
        self._write: Write = self._write_json if as_json else self._write_text
        self._waiting: dict[int, Output] = {}
        self._next = 0

    def run(self, llm: LLM, params: SamplingParams, chat: bool) -> bool:
        """Generate everything; whether Ctrl-C cut it short."""
        requests = [_as_chat(llm, prompt) if chat else prompt for prompt in self.prompts]
        started = time.perf_counter()
        with Interrupt() as interrupt, self._progress_bar() as bar:
            chunks = llm.generate(requests, params, stream=True)
            for chunk in until_interrupted(chunks, interrupt):
                self._take(chunk, bar)
        self._flush()
        typer.echo(self.totals.line(time.perf_counter() - started), err=True)
        return interrupt.pressed

    def _take(self, chunk: Delta, bar: tqdm[Any]) -> None:
        if self._streams:
            self._show(chunk["text"])
        if (output := chunk.get("output")) is not None:
            bar.update()
            self.totals.add(output)
            self._waiting[chunk["index"]] = output
            while self._next in self._waiting:
                self._write(self._next, self._waiting.pop(self._next))
                self._next += 1

    def _flush(self) -> None:
        """After Ctrl-C: what finished behind a prompt that did not."""
        for index in sorted(self._waiting):
            self._write(index, self._waiting.pop(index))

    def _write_json(self, index: int, output: Output) -> None:
        self._sink.write(json_line({"index": index, "prompt": self.prompts[index], **output}) + "\n")
        self._sink.flush()

    def _write_text(self, index: int, output: Output) -> None:
        if "error" in output:
            typer.secho(f"error: prompt {index + 1}: {output['error']}", fg="red", err=True)
        elif self._streams:
            self._show("\n")
        else:
            texts = [choice["text"] for choice in choices_of(output)]
            self._show("\n".join([f"[{index + 1}] {self.prompts[index]}", *texts]) + "\n\n")

    def _show(self, text: str) -> None:
        self._sink.write(printable(text) if self._sink.isatty() else text)
        self._sink.flush()

    def _progress_bar(self) -> tqdm[Any]:
        """On stderr if that is a terminal, but not between outputs shown on the same one, nor for a single prompt."""
        useless = len(self.prompts) == 1 or self._sink.isatty()
        return tqdm(total=len(self.prompts), unit="prompt", disable=True if useless else None)


def _read_prompts(given: list[str], file: Path | None) -> list[str]:
    texts = [sys.stdin.read() if text == "-" else text for text in given]
    if file is not None:
        texts += [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    if not texts:
        raise ValueError("nothing to generate: give a prompt, or --file with one a line")
    return texts


@contextlib.contextmanager
def _open_output(path: Path | None) -> Iterator[IO[str]]:
    if path is None:
        yield sys.stdout
        return
    with path.open("w", encoding="utf-8") as sink:
        yield sink


def _as_chat(llm: LLM, prompt: str) -> Prompt:
    """Token ids of the model's chat template around one user message, up to where the answer begins."""
    return llm.client.tokenizer.apply_chat_template([{"role": "user", "content": prompt}])

"""The commands. Nothing heavy is imported until a command needs it, so --help is fast."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated, Any, cast

import typer

from minisgl import __version__
from minisgl.utils.logging import install_handler

PLAIN_COMMANDS = {
    "pull": "minisgl.cli.pull",
    "doctor": "minisgl.cli.doctor",
    "top": "minisgl.cli.top",
    "profile": "minisgl.cli.profile",
    "explain": "minisgl.cli.explain",
    "tree": "minisgl.cli.tree",
}
MODEL_COMMANDS = {
    "serve": "minisgl.cli.serve",
    "generate": "minisgl.cli.generate",
    "chat": "minisgl.cli.chat",
    "launch": "minisgl.cli.launch",
    "simulate": "minisgl.cli.simulate",
}
SUMMARIES = {
    "serve": "Serve a model over HTTP, with OpenAI's API.",
    "generate": "Generate text for one or many prompts, greedily unless --temperature is given.",
    "chat": "Chat with a model in this terminal, greedily unless --temperature is given.",
    "launch": "The predecessor's command line: python -m minisgl --model X [--shell].",
    "pull": "Fetch a model by its alias.",
    "doctor": "Show what was found on this machine.",
    "top": "Watch what a running server does, in this terminal.",
    "profile": "Record what a running server does, as a trace for Perfetto.",
    "explain": "Say why prompts are cached or not after others, and where they part.",
    "tree": "Draw the radix tree of a running server: as text, JSON, DOT or one HTML file.",
    "simulate": "Replay a trace of requests through scheduler and cache, without a model.",
}
HIDDEN = {"launch"}
BENCH_SUMMARY = "Measure a server, or the engine in this process."
BENCH_COMMANDS = {
    "serve": ("minisgl.cli.bench_serve", "Send requests to a server and report how fast it answered."),
    "offline": ("minisgl.cli.bench_offline", "Answer many prompts in this process and report how fast it was."),
    "radix": ("minisgl.cli.bench_radix", "Answer the same prompts with the radix cache and without one."),
}
ROOT_OPTIONS = {"--help", "--version"}


def run(argv: Sequence[str]) -> None:
    """Run one command line and exit as typer does. Errors of the user come out as ValueError or OSError."""
    arguments = _with_command(list(argv))
    install_handler()
    build_app(arguments[0])(arguments, prog_name="minisgl")


def build_app(command: str) -> typer.Typer:
    """The application, of which only `command` is complete: the flags of the others would cost imports."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
    app.callback()(_root)
    for name, summary in SUMMARIES.items():
        function = _load(name) if name == command else _unloaded
        app.command(name, help=summary, hidden=name in HIDDEN)(function)
    app.add_typer(_bench_app(is_complete=command == "bench"), name="bench", help=BENCH_SUMMARY)
    return app


def _bench_app(*, is_complete: bool) -> typer.Typer:
    """The commands below `bench`."""
    app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")
    for name, (module, summary) in BENCH_COMMANDS.items():
        app.command(name, help=summary)(_complete(module) if is_complete else _unloaded)
    return app


def _with_command(arguments: list[str]) -> list[str]:
    """Nothing at all asks for help; flags without a command are the predecessor's."""
    if not arguments:
        return ["--help"]
    if arguments[0].startswith("-") and arguments[0] not in ROOT_OPTIONS:
        return ["launch", *arguments]
    return arguments


def _load(name: str) -> Callable[..., Any]:
    if name in PLAIN_COMMANDS:
        return cast("Callable[..., Any]", import_module(PLAIN_COMMANDS[name]).run)
    return _complete(MODEL_COMMANDS[name])


def _complete(module: str) -> Callable[..., Any]:
    """A command with the flags of the configs that it takes."""
    from minisgl.cli.flags import with_flags

    return with_flags(import_module(module).run)


def _unloaded() -> None:
    raise AssertionError("a command ran that was not loaded")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"minisgl {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Serve and run large language models around RadixAttention."""

"""The command line. `main` is what the `minisgl` script and `python -m minisgl` call."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

from minisgl.utils.garbage import look_less_often
from minisgl.utils.malloc import limit_arenas


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command line (default: this process's) and exit: 0 well, 1 a request failed, 2 the user's mistake."""
    _fill_standard_streams()
    limit_arenas()
    look_less_often()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # an answer may hold what the terminal's encoding lacks
    try:
        from minisgl.cli.app import run  # here, because a wrong MINISGL_* variable is found on import

        run(sys.argv[1:] if argv is None else argv)
    except KeyboardInterrupt:
        sys.exit(130)
    except (ValueError, OSError) as error:
        _fail(error)


def _fill_standard_streams() -> None:
    """Whoever starts us may have closed them: a socket would get stderr's number, and what is written there."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)  # the engine's process has them too
    os.close(number)
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def _fail(error: Exception) -> None:
    """One line on stderr, harmless to a terminal whoever wrote it, and exit code 2.

    With MINISGL_LOG_LEVEL=DEBUG the traceback too.
    """
    import logging

    import typer

    from minisgl.cli.session import printable

    logging.getLogger("minisgl.cli").debug("traceback of the error below", exc_info=error)
    typer.secho(f"error: {printable(_reason(error))}", fg="red", err=True)
    sys.exit(2)


def _reason(error: Exception) -> str:
    """Of a file its name first, and no number."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)

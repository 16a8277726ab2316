"""minisgl pull"""

from __future__ import annotations

from typing import Annotated

import typer

from minisgl.utils.model_store import pull


def run(alias: Annotated[str, typer.Argument(help="smollm2 is the one there is.")]) -> None:
    """Fetch a model by its alias; its file on stdout."""
    typer.echo(pull(alias))

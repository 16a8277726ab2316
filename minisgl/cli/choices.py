"""Flags that take one of a few words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer


def choice_option(declaration: str, choices: Sequence[str], **settings: Any) -> Any:
    """`typer.Option` for a flag of type str. Help shows the choices; any other word is a usage error."""

    def check(value: str | None) -> str | None:
        if value is not None and value not in choices:
            raise typer.BadParameter(f"{value!r} is not one of {', '.join(choices)}")
        return value

    return typer.Option(declaration, metavar=f"<{'|'.join(choices)}>", callback=check, **settings)

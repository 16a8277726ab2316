"""The flags that `bench offline` and `bench radix` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from minisgl.cli.bench.offline import DATASETS
from minisgl.cli.choices import choice_option

Dataset = Annotated[str, choice_option("--dataset", list(DATASETS), help="What is asked.")]
NumPrompts = Annotated[int, typer.Option("--num-prompts", min=1, help="Prompts in all, asked at once.")]
InputLen = Annotated[int, typer.Option("--input-len", min=1, help="Tokens of a prompt, or of it behind its prefix.")]
OutputLen = Annotated[int, typer.Option("--output-len", min=1, help="Tokens to generate for each.")]
PrefixLen = Annotated[int, typer.Option("--prefix-len", min=1, help="shared-prefix: tokens of a prefix.")]
NumGroups = Annotated[int, typer.Option("--num-groups", min=1, help="shared-prefix: different prefixes.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Of the prompts.")]
AsJson = Annotated[Path | None, typer.Option("--json", help="Write everything to this file.")]
Plot = Annotated[Path | None, typer.Option("--plot", help="Draw it to this file, .svg or .png.")]

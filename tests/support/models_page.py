"""The table of docs/models.md, made from the models of the tests; scripts/models-table prints the page with it."""

from __future__ import annotations

from typing import Any

from support.dense_models import CONFIGS as DENSE
from support.gguf_dense import MODELS as GGUF
from support.tiny_experts import CONFIGS as EXPERTS
from support.tiny_experts import IN_GGUF
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

BEGIN, END = "<!-- made by scripts/models-table -->\n", "<!-- end -->\n"


def page(text: str) -> str:
    """`text` with the table between BEGIN and END."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + _table() + END + rest.partition(END)[2]


def _table() -> str:
    lines = ["| architecture | tested variants | GGUF |", "| --- | --- | --- |"]
    variants: dict[str, list[str]] = {}
    for name, config in (DENSE | EXPERTS).items():
        variants.setdefault(_architecture(config), []).append(name.partition(", ")[2] or "plain")
    from_gguf = {_architecture(config) for config in [*GGUF.values(), *map(EXPERTS.get, IN_GGUF)]}
    for architecture, names in variants.items():
        lines.append(f"| `{architecture}` | {'; '.join(names)} | {'yes' if architecture in from_gguf else 'no'} |")
    return "\n".join(lines) + "\n"


def _architecture(config: Any) -> str:
    name: str = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[config.model_type]
    return name

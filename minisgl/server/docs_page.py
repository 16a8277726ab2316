"""The OpenAPI document as one page for people: no scripts, nothing from elsewhere."""

from __future__ import annotations

from functools import cache
from html import escape
from typing import Any

from minisgl.server.openapi import document

Schema = dict[str, Any]
_STYLE = """
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
code { font: 13px ui-monospace, monospace }
summary { cursor: pointer; padding: .4rem 0 }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1.5rem }
td { border-top: 1px solid #8884; padding: .25rem .75rem .25rem 0; vertical-align: top }
"""


@cache
def page() -> str:
    """HTML."""
    api = document()
    title = f"minisgl {api['info']['version']}"
    operations = "".join(
        _operation(api, method, path, described)
        for path, methods in api["paths"].items()
        for method, described in methods.items()
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
        f'<h1>{title}</h1><p>The same as an OpenAPI document: <a href="openapi.json">openapi.json</a></p>'
        f"{operations}</html>"
    )


def _operation(api: Schema, method: str, path: str, described: Schema) -> str:
    head = f"<code>{method.upper()} {escape(path)}</code> {escape(described['summary'])}"
    body = ""
    if "requestBody" in described:
        body += _fields(api, described["requestBody"]["content"]["application/json"]["schema"])
    answers = [(status, answer["description"]) for status, answer in described["responses"].items()]
    return f"<details><summary>{head}</summary>{body}{_table(answers)}</details>"


def _fields(api: Schema, schema: Schema) -> str:
    """A table of a body's fields. Those that may only be absent are left out."""
    schema = _resolved(api, schema)
    required = schema.get("required", ())
    rows = []
    for name, field in schema["properties"].items():
        kinds = [kind for kind in field.get("anyOf", [field]) if kind.get("type") != "null"]
        if kinds:
            notes = [kind["description"] for kind in kinds if "description" in kind]
            text = " or ".join(_kind(api, kind) for kind in kinds)
            rows.append((name, " ".join([text + (", required" if name in required else ""), *notes])))
    return f"<p>{escape(schema.get('description', ''))}</p>{_table(rows)}"


def _kind(api: Schema, schema: Schema) -> str:
    """A type in a few words, such as `integer, 1 to 128`."""
    if "enum" in schema or "const" in schema:
        return "only " + " or ".join(map(repr, schema.get("enum", [schema.get("const")])))
    if "anyOf" in schema and "type" not in schema:
        return " or ".join(_kind(api, each) for each in schema["anyOf"])
    if "$ref" in schema:
        return str(_resolved(api, schema).get("title", "object"))
    kind = str(schema.get("type", "anything"))
    if "minimum" in schema:
        kind += f", {schema['minimum']} to {schema['maximum']}" if "maximum" in schema else f" from {schema['minimum']}"
    return f"{kind} of {_kind(api, schema['items'])}" if "items" in schema else kind


def _resolved(api: Schema, schema: Schema) -> Schema:
    if "$ref" not in schema:
        return schema
    found: Schema = api["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    return found


def _table(rows: list[tuple[str, str]]) -> str:
    cells = "".join(f"<tr><td><code>{escape(name)}</code><td>{escape(text)}" for name, text in rows)
    return f"<table>{cells}</table>"

"""The OpenAPI document as one page for people: no scripts, nothing from elsewhere."""

from __future__ import annotations

from functools import cache
from html import escape
from typing import Any

import msgspec

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
    query = [(each["name"], each["description"]) for each in described.get("parameters", ()) if each["in"] == "query"]
    body = _table(query) if query else ""
    if "requestBody" in described:
        schema = described["requestBody"]["content"]["application/json"]["schema"]
        body += "".join(_object(found) for found in _objects(api, schema))
    answers = [(status, answer["description"]) for status, answer in described["responses"].items()]
    return f"<details><summary>{head}</summary>{body}{_table(answers)}</details>"


def _objects(api: Schema, schema: Any) -> list[Schema]:
    """The objects that this schema refers to, and those that they refer to, each once."""
    names: list[str] = []
    pending = [schema]
    while pending:
        part = pending.pop()
        if isinstance(part, list):
            pending += part
        elif isinstance(part, dict):
            pending += part.values()
            name = str(part.get("$ref", "")).rpartition("/")[2]
            if name and name not in names:
                names.append(name)
                pending.append(api["components"]["schemas"][name])
    return [api["components"]["schemas"][name] for name in names]


def _object(schema: Schema) -> str:
    """A table of its fields: what is required first, what is taken but does nothing last."""
    rows = []
    for name, field in schema["properties"].items():
        kinds = [kind for kind in field.get("anyOf", [field]) if kind.get("type") != "null"]
        is_required = name in schema.get("required", ())
        if kinds:
            notes = [kind["description"] for kind in kinds if "description" in kind]
            text = " or ".join(map(_kind, kinds)) + (", required" if is_required else "")
            rows.append((not is_required, text.startswith("only"), name, ". ".join([text, *notes])))
    about = f"<p><b>{escape(schema['title'])}</b> {escape(schema.get('description', ''))}</p>"
    return about + _table([(name, text) for _, _, name, text in sorted(rows)])


def _kind(schema: Schema) -> str:
    """A type in a few words, such as `integer, 1 to 128`."""
    if "enum" in schema or "const" in schema:
        return "only " + " or ".join(msgspec.json.encode(value).decode() for value in _values(schema))
    if "anyOf" in schema and "type" not in schema:
        return " or ".join(map(_kind, schema["anyOf"]))
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if schema.get("maxItems") == 0:
        return "only an empty array"
    kind = str(schema.get("type", "anything"))
    if "minimum" in schema:
        kind += f", {schema['minimum']} to {schema['maximum']}" if "maximum" in schema else f" from {schema['minimum']}"
    return f"{kind} of {_kind(schema['items'])}" if "items" in schema else kind


def _values(schema: Schema) -> list[Any]:
    return list(schema["enum"]) if "enum" in schema else [schema["const"]]


def _table(rows: list[tuple[str, str]]) -> str:
    cells = "".join(f"<tr><td><code>{escape(name)}</code><td>{escape(text)}" for name, text in rows)
    return f"<table>{cells}</table>"

"""The API as an OpenAPI document, made of the types that decode requests and encode answers."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import msgspec

import minisgl
from minisgl.server.schema.api import OPERATIONS, Operation, Query
from minisgl.server.schema.info import ErrorBody

Schema = dict[str, Any]


@cache
def document() -> Schema:
    """OpenAPI 3.1, as JSON's objects."""
    types = list(dict.fromkeys([ErrorBody, *(each for operation in OPERATIONS for each in operation.types)]))
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    refs: dict[Any, Schema] = dict(zip(types, schemas, strict=True))
    paths: dict[str, Schema] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _described(operation, refs)
    return {
        "openapi": "3.1.0",
        "info": {"title": "minisgl", "version": minisgl.__version__, "license": {"name": "Apache-2.0"}},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


def _described(operation: Operation, refs: dict[Any, Schema]) -> Schema:
    errors = {
        str(status): {"description": meaning, "content": _json(refs[ErrorBody])}
        for status, meaning in sorted(operation.errors.items())
    }
    described: Schema = {
        "summary": operation.summary,
        "operationId": operation.method + re.sub(r"\W+", "_", operation.path),
        "responses": {"200": _answer(operation, refs)} | errors,
    }
    names = re.findall(r"{(\w+)}", operation.path)
    if parameters := [*map(_path_parameter, names), *map(_query_parameter, operation.query)]:
        described["parameters"] = parameters
    if operation.body is not None:
        described["requestBody"] = {"required": True, "content": _json(refs[operation.body])}
    return described


def _answer(operation: Operation, refs: dict[Any, Schema]) -> Schema:
    content = _json(refs[operation.answer])
    if operation.events is None:
        return {"description": "Done.", "content": content}
    name = operation.events.__name__
    content["text/event-stream"] = {"schema": {"description": f"Events `data: {name}`, the last one `data: [DONE]`."}}
    return {"description": "The whole answer, or with `stream: true` events.", "content": content}


def _json(schema: Schema) -> Schema:
    return {"application/json": {"schema": schema}}


def _path_parameter(name: str) -> Schema:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _query_parameter(query: Query) -> Schema:
    bounds = {"minimum": query.minimum, "maximum": query.maximum, "default": query.default}
    schema = {"type": "integer"} | {name: bound for name, bound in bounds.items() if bound is not None}
    return {"name": query.name, "in": "query", "description": query.help, "schema": schema}

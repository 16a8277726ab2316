"""Errors as HTTP responses."""

from __future__ import annotations

from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from minisgl.server.errors import ApiError

# Of OpenAI's API: clients are to learn that it is not their address that is wrong.
NOT_SERVED = frozenset(
    {"assistants", "audio", "batches", "chatkit", "containers", "conversations", "edits", "embeddings"}
)
NOT_SERVED |= {"engines", "evals", "files", "fine_tuning", "images", "moderations", "organization", "realtime"}
NOT_SERVED |= {"responses", "threads", "uploads", "vector_stores", "videos"}


def error_response(error: ApiError) -> Response:
    return Response(error.encode(), error.status, error.headers, media_type="application/json")


async def answer_api_error(request: Request, error: Exception) -> Response:
    """What a route refused."""
    assert isinstance(error, ApiError), f"{error!r} came to the wrong handler"
    return error_response(error)


async def answer_http_exception(request: Request, error: Exception) -> Response:
    """What the router refused: a path or a method that is not there."""
    assert isinstance(error, HTTPException), f"{error!r} came to the wrong handler"
    where = f"{request.method} {request.url.path}"
    if error.status_code == HTTPStatus.NOT_FOUND and (name := _known_name(request.url.path)) in NOT_SERVED:
        message = f"/v1/{name} of OpenAI's API is not served; /v1/chat/completions and /v1/completions are"
        return error_response(ApiError(400, message, code="unsupported_endpoint"))
    if error.status_code == HTTPStatus.NOT_FOUND:
        return error_response(ApiError(404, f"there is no {where}", code="not_found"))
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = dict(error.headers or {})
        message = f"{where}: only {allowed.get('Allow', 'another method')} is allowed"
        return error_response(ApiError(405, message, code="method_not_allowed", headers=allowed))
    return error_response(ApiError(error.status_code, error.detail, headers=error.headers))


def _known_name(path: str) -> str:
    """What comes after /v1/, to the next slash; "" for other paths."""
    root, _, rest = path.partition("/v1/")
    return "" if root else rest.partition("/")[0]

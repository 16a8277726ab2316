"""The routes of the API."""

from __future__ import annotations

from starlette.routing import Route

from minisgl.server.endpoints.activity import show_activity
from minisgl.server.endpoints.cache import explain_cache, flush_cache, probe_cache, purge_cache
from minisgl.server.endpoints.chat import chat_completions
from minisgl.server.endpoints.completions import completions
from minisgl.server.endpoints.control import abort_request
from minisgl.server.endpoints.generate import generate
from minisgl.server.endpoints.info import get_model_info, get_server_info, health_generate, version
from minisgl.server.endpoints.inspect_tree import find_prompt, show_node, show_tree
from minisgl.server.endpoints.models import list_models, show_model
from minisgl.server.endpoints.page import index, ui_file
from minisgl.server.endpoints.pages import docs, openapi_json
from minisgl.server.endpoints.requests import past_requests
from minisgl.server.endpoints.tokens import detokenize, tokenize

ROUTES = [
    Route("/v1/chat/completions", chat_completions, methods=["POST"]),
    Route("/v1/completions", completions, methods=["POST"]),
    Route("/v1/models", list_models, methods=["GET"]),
    Route("/v1/models/{model:path}", show_model, methods=["GET"]),
    Route("/generate", generate, methods=["POST"]),
    Route("/tokenize", tokenize, methods=["POST"]),
    Route("/detokenize", detokenize, methods=["POST"]),
    Route("/cache/probe", probe_cache, methods=["POST"]),
    Route("/cache/explain", explain_cache, methods=["POST"]),
    Route("/cache/purge", purge_cache, methods=["POST"]),
    Route("/flush_cache", flush_cache, methods=["POST"]),
    Route("/inspect/activity", show_activity, methods=["GET"]),
    Route("/inspect/requests", past_requests, methods=["GET"]),
    Route("/inspect/tree", show_tree, methods=["GET"]),
    Route("/inspect/tree/{id}", show_node, methods=["GET"]),
    Route("/inspect/path", find_prompt, methods=["POST"]),
    Route("/abort_request", abort_request, methods=["POST"]),
    Route("/health_generate", health_generate, methods=["GET"]),
    Route("/get_server_info", get_server_info, methods=["GET"]),
    Route("/get_model_info", get_model_info, methods=["GET"]),
    Route("/version", version, methods=["GET"]),
    Route("/openapi.json", openapi_json, methods=["GET"]),
    Route("/docs", docs, methods=["GET"]),
    Route("/", index, methods=["GET"]),
    Route("/ui/{name}", ui_file, methods=["GET"]),
]

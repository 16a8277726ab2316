"""Every operation of the API: what it takes, what it gives, how it fails. The OpenAPI document is made of this."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from minisgl.core.picture import MAX_PICTURE_NODES
from minisgl.server.schema.activity import ActivityNow
from minisgl.server.schema.answers import ChatChunk, ChatCompletion, Completion
from minisgl.server.schema.cache import Probed, ProbeRequest, Purged, PurgeRequest
from minisgl.server.schema.chat import ChatRequest
from minisgl.server.schema.completions import CompletionRequest
from minisgl.server.schema.control import AbortRequest
from minisgl.server.schema.explanation import ExplainedPrompt, PastRequests
from minisgl.server.schema.generate import Generated, GenerateRequest
from minisgl.server.schema.info import (
    Aborted,
    Alive,
    Flushed,
    Health,
    Model,
    ModelInfo,
    ModelList,
    ServerInfo,
    Text,
    Tokens,
    Version,
)
from minisgl.server.schema.tokens import DetokenizeRequest, TokenizeRequest
from minisgl.server.schema.tree import PromptPath, Tree, TreeNodeUse

_KEY = {401: "The API key is missing or wrong.", 403: "Without a key: sent to a name that is not this machine's."}
_ENGINE = _KEY | {500: "Our mistake; the log says more.", 503: "Loading, draining, dead, or too slow."}
_BUSY = {429: "Too much runs and waits, or is being sent; `Retry-After` says when to come again."}
_BODY = (
    _ENGINE
    | {400: "The request is wrong; `param` names the field.", 413: "The body is too large.", 415: "It is packed."}
    | _BUSY
)
_ASKED = _ENGINE | {400: "The address is wrong; `param` names what of it."}
_LOOKED_AT = {429: "Too many look at the engine; `Retry-After` says when to come again."}
_PAGE = {403: "A browser sent it for a page of another origin, or to a name that is not this machine's."}
_MODEL = _BODY | {404: "No such model."}
_EXPLAINED = _BODY | {404: "No such model, or --no-explain."}

_GONE = {404: "No such node, or not any more."}


@dataclass(frozen=True)
class Query:
    """A number that may stand behind the ? of an address. default: None where its absence has a meaning of its own."""

    name: str
    help: str
    default: int | None = None
    minimum: int = 0
    maximum: int | None = None


LIMIT = Query("limit", "At most so many, the newest first.", default=64, minimum=1, maximum=512)
NODE = Query("node", "The id of the node below which to look; without it everything is shown.", minimum=1)
MAX_NODES = Query(
    "max_nodes", "Show at most so many nodes, the largest.", default=1500, minimum=1, maximum=MAX_PICTURE_NODES
)
SINCE = Query("since", "The step to begin with: `next` of the answer before.", default=0)


@dataclass(frozen=True)
class Operation:
    """answer: with status 200. errors: what other statuses mean. events: of the stream, if `body` can ask for one.
    query: what the address may say besides.
    """

    method: Literal["get", "post"]
    path: str
    summary: str
    answer: Any
    errors: Mapping[int, str]
    body: Any = None
    events: Any = None
    query: tuple[Query, ...] = ()

    @property
    def types(self) -> tuple[Any, ...]:
        return tuple(each for each in (self.answer, self.body, self.events) if each is not None)


OPERATIONS = (
    Operation("post", "/v1/chat/completions", "A chat's next message", ChatCompletion, _MODEL, ChatRequest, ChatChunk),
    Operation("post", "/v1/completions", "How prompts go on", Completion, _MODEL, CompletionRequest, Completion),
    Operation("get", "/v1/models", "The one model that is served", ModelList, _ENGINE),
    Operation("get", "/v1/models/{model}", "The model of that name", Model, _ENGINE | {404: "No such model."}),
    Operation(
        "post",
        "/generate",
        "How prompts go on, in SGLang's form",
        Generated | list[Generated],
        _MODEL,
        GenerateRequest,
        Generated,
    ),
    Operation("post", "/tokenize", "The token ids of a text or a chat", Tokens, _MODEL, TokenizeRequest),
    Operation("post", "/detokenize", "The text of token ids", Text, _MODEL, DetokenizeRequest),
    Operation("post", "/cache/probe", "How much of a prompt is cached", Probed, _MODEL, ProbeRequest),
    Operation("post", "/cache/explain", "Why a prompt is cached or not", ExplainedPrompt, _EXPLAINED, ProbeRequest),
    Operation(
        "post", "/cache/purge", "Later requests use nothing of one salt or prefix", Purged, _MODEL | _PAGE, PurgeRequest
    ),
    Operation("post", "/flush_cache", "Later requests use nothing that is cached now", Flushed, _ENGINE | _PAGE),
    Operation("post", "/abort_request", "End requests that run or wait", Aborted, _BODY | _PAGE, AbortRequest),
    Operation(
        "get",
        "/inspect/activity",
        "What the engine does, step by step",
        ActivityNow,
        _ASKED | _LOOKED_AT,
        query=(SINCE,),
    ),
    Operation("get", "/inspect/requests", "Requests that are over", PastRequests, _ASKED, query=(LIMIT,)),
    Operation(
        "get",
        "/inspect/tree",
        "The prefix cache's trees, folded",
        Tree,
        _ASKED | _LOOKED_AT | _GONE,
        query=(NODE, MAX_NODES),
    ),
    Operation("get", "/inspect/tree/{id}", "Who uses a node of the tree", TreeNodeUse, _ENGINE | _LOOKED_AT | _GONE),
    Operation("post", "/inspect/path", "Where in the tree a prompt lies", PromptPath, _MODEL, ProbeRequest),
    Operation("get", "/health", "Whether requests are served", Health, {503: "Loading, draining or dead."}),
    Operation("get", "/health_generate", "Whether the engine generates", Alive, _ENGINE),
    Operation("get", "/get_server_info", "What runs here, and counters as of now", ServerInfo, _ENGINE),
    Operation("get", "/get_model_info", "The model, in SGLang's words", ModelInfo, _ENGINE),
    Operation("get", "/version", "The version of minisgl", Version, _KEY),
)

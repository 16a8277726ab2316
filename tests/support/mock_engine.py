"""A made-up engine behind /inspect, for tests and figures of the page's view of it."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from functools import cache
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from support.asgi import Api
from support.mock_activity import MockActivity
from support.mock_tree import MockTree

from minisgl.server.config import ServerConfig


class MockEngine(Api):
    """A server whose engine is made up where the page looks at it.

    grows: the tree does, with each answer. unfolded: its answers have all nodes, whatever was asked for. speed:
    seconds of the engine's clock a second. asked: how often each path was. trouble: the status of all answers. gone:
    evicted nodes. slow_s: how long an answer of the activity takes; most_open: of these questions at once.
    """

    def __init__(
        self,
        tree: MockTree | None = None,
        activity: MockActivity | None = None,
        requests: list[dict[str, Any]] | None = None,
        *,
        with_text: bool = True,
        grows: bool = False,
        unfolded: bool = False,
        speed: float = 1.0,
        config: ServerConfig | None = None,
    ) -> None:
        super().__init__(config=config)
        self.tree = tree or MockTree()
        self.activity = activity or MockActivity()
        self.requests = past_requests() if requests is None else requests
        self.with_text, self.grows, self.unfolded, self.speed = with_text, grows, unfolded, speed
        self.path: dict[str, Any] = {"prompt_tokens": 0, "matched_tokens": 0, "nodes": []}
        self.asked: Counter[str] = Counter()
        self.trouble: int | None = None
        self.gone: set[int] = set()
        self.slow_s = 0.0
        self.open = self.most_open = 0
        self._told_at = time.monotonic()
        self._random = random.Random(1)
        self.app.router.routes[:0] = [
            Route("/inspect/activity", self._activity),
            Route("/inspect/tree", self._tree),
            Route("/inspect/tree/{id:int}", self._node),
            Route("/inspect/path", self._path, methods=["POST"]),
            Route("/inspect/requests", self._requests),
        ]

    async def _activity(self, request: Request) -> JSONResponse:
        self._note(request)
        await self._take_time()
        now = time.monotonic()
        self.activity.run(min(5.0, now - self._told_at) * self.speed)
        self._told_at = now
        return JSONResponse(self.activity.answer(int(request.query_params.get("since", 0))))

    async def _tree(self, request: Request) -> Response:
        self._note(request)
        if self.grows:
            self.grow()
        node = request.query_params.get("node")
        self._check(int(node or 0))
        if self.unfolded:
            return Response(self._whole(node), media_type="application/json")
        return JSONResponse(self._answer(node, int(request.query_params["max_nodes"])))

    def _answer(self, node: str | None, max_nodes: int) -> dict[str, Any]:
        return self.tree.answer(max_nodes, None if node is None else int(node), self.with_text)

    @cache  # noqa: B019 (an engine lives as long as its test)
    def _whole(self, node: str | None) -> bytes:
        """Made once: it takes longer than the page waits."""
        return json.dumps(self._answer(node, len(self.tree.nodes))).encode()

    def grow(self) -> None:
        """Some chats go on, and some are locked."""
        leaves = [
            self.tree.add(self._random.randrange(len(self.tree.nodes) // 2, len(self.tree.nodes))) for _ in range(4)
        ]
        self.tree.count()
        self.tree.lock([leaf.id for leaf in leaves])

    async def _node(self, request: Request) -> JSONResponse:
        self._note(request)
        number = request.path_params["id"]
        self._check(number)
        node = self.tree.nodes[number]
        users = [{"uid": each, "request_id": f"chat-{each:05d}", "state": "decode"} for each in range(node.locks)]
        path_tokens = sum(self.tree.nodes[each].tokens for each in self.tree.path(number))
        sizes = {"path_tokens": path_tokens, "tokens": node.tokens, "locks": node.locks}
        about = {"id": number, **sizes, "age": self.tree.clock - node.last_access, "users": users, "waiting": []}
        return JSONResponse(about | ({"text": node.text} if self.with_text else {}))

    async def _path(self, request: Request) -> JSONResponse:
        self._note(request)
        return JSONResponse(self.path)

    async def _requests(self, request: Request) -> JSONResponse:
        self._note(request)
        return JSONResponse({"requests": self.requests})

    async def _take_time(self) -> None:
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        await asyncio.sleep(self.slow_s)
        self.open -= 1

    def _check(self, node: int) -> None:
        if node in self.gone:
            raise HTTPException(404, f"node {node} is gone")

    def _note(self, request: Request) -> None:
        self.asked[request.url.path] += 1
        if self.trouble is not None:
            raise HTTPException(self.trouble, "made-up trouble")


def past_requests(number: int = 40, seed: int = 2) -> list[dict[str, Any]]:
    """Requests that are over, each missed for another reason."""
    chance = random.Random(seed)
    causes = ("never_seen", "evicted", "below_page", "other_namespace", "joined")
    return [past_request(f"chat-{place:05d}", {causes[place % 5]: chance.randint(1, 900)}) for place in range(number)]


def past_request(request_id: str, missed: dict[str, int], hit: int = 400, **changes: Any) -> dict[str, Any]:
    """missed: tokens by cause, besides the hits and the last token."""
    causes = {"hit": hit, **missed, "last_token": 1}
    prompt = sum(causes.values())
    was_evicted = "evicted" in missed
    explanation = {
        "causes": causes,
        "left_at": hit if "never_seen" in missed else prompt,
        "evicted_s": 12.5 if was_evicted else None,
        "evicted_tokens": 4096 if was_evicted else None,
    }
    return {
        "request_id": request_id,
        "uids": [1],
        "endpoint": "/v1/chat/completions",
        "started_at": 1_790_000_000.0,
        "status": 200,
        "prompt_tokens": prompt,
        "cached_tokens": hit + missed.get("joined", 0),
        "generated_tokens": 64,
        "queue_s": 0.002,
        "first_token_s": prompt / 8000,
        "total_s": 0.4 + prompt / 8000,
        "finish_reason": "stop",
        "explanation": explanation,
        **changes,
    }

"""What one writes first: FastAPI and pydantic, and for every token a queue item, a chunk object, JSON and a write.

The engine's link and what makes text of tokens are ours, so only what is around them is compared.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator

from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from minisgl.core import SamplingParams
from minisgl.llm import AsyncClient
from minisgl.llm.router import Arrival


class Request(BaseModel):
    model: str
    prompt: list[int] | str
    max_tokens: int = 16
    temperature: float = 1.0
    ignore_eos: bool = False
    stream: bool = False


class Choice(BaseModel):
    index: int
    text: str
    finish_reason: str | None = None
    logprobs: dict[str, list[float]] | None = None


class Chunk(BaseModel):
    id: str
    object: str = "text_completion"
    created: int
    model: str
    choices: list[Choice]


def make_app(client: AsyncClient) -> FastAPI:
    """`/v1/completions`, streamed, and `/health`."""
    app = FastAPI()

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.post("/v1/completions")
    async def completions(request: Request) -> StreamingResponse:
        return StreamingResponse(events(client, request), media_type="text/event-stream")

    return app


async def events(client: AsyncClient, request: Request) -> AsyncIterator[str]:
    params = SamplingParams(max_tokens=request.max_tokens, ignore_eos=request.ignore_eos)
    submission = client.client.submission([await client.prepare(request.prompt, params)])
    loop, replies = asyncio.get_running_loop(), asyncio.Queue[Arrival]()

    def put(arrival: Arrival) -> None:
        loop.call_soon_threadsafe(replies.put_nowait, arrival)

    submission.start(put)
    while not submission.is_over:
        arrival = await replies.get()
        for reply in arrival.each():
            delta = submission.take(reply, arrival.at)
            if delta is None:
                continue
            choice = Choice(index=delta["choice"], text=delta["text"], finish_reason=delta["finish_reason"])
            chunk = Chunk(id="cmpl-1", created=int(time.time()), model=request.model, choices=[choice])
            yield f"data: {json.dumps(chunk.model_dump())}\n\n"
    yield "data: [DONE]\n\n"

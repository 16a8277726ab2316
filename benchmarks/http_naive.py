"""What one writes first: FastAPI and pydantic, a chunk object and its JSON for every token.

It has the better half of ours: the engine's link, the thread that makes text of tokens, and the merging of late ones.
"""

import json
import time
from collections.abc import AsyncIterator

from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from minisgl.core import SamplingParams
from minisgl.llm import AsyncClient


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
    prepared = await client.prepare(request.prompt, params)
    async for deltas in client.run([prepared]):
        for delta in deltas:
            choice = Choice(index=delta["choice"], text=delta["text"], finish_reason=delta["finish_reason"])
            chunk = Chunk(id="cmpl-1", created=int(time.time()), model=request.model, choices=[choice])
            yield f"data: {json.dumps(chunk.model_dump())}\n\n"
    yield "data: [DONE]\n\n"

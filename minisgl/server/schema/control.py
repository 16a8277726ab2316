"""POST /abort_request."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from minisgl.server.errors import ApiError
from minisgl.server.schema.decoding import Body


class AbortRequest(Body, kw_only=True):
    """Requests of one name, or all of them."""

    rid: (
        Annotated[str, Meta(description="An answer's id, its x-request-id, or the rid that /generate was sent.")] | None
    ) = None
    abort_all: bool | None = None

    def __post_init__(self) -> None:
        if not self.rid and not self.abort_all:
            raise ApiError(400, "one of rid and abort_all is required", param="rid")

"""GET /v1/models and /v1/models/{model}."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from minisgl.server.endpoints.common import check_model, json_response, state_of
from minisgl.server.schema.info import Model, ModelList
from minisgl.server.state import ServerState


async def list_models(request: Request) -> Response:
    """The one model that is served."""
    return json_response(ModelList([_model(state_of(request))]))


async def show_model(request: Request) -> Response:
    """The model of that name, or 404."""
    check_model(state_of(request), request.path_params["model"])
    return json_response(_model(state_of(request)))


def _model(state: ServerState) -> Model:
    return Model(
        id=state.model_name,
        created=int(state.started_at),
        max_model_len=state.ready_engine().limits.max_model_len,
        sampling_defaults=state.sampling_defaults,
    )

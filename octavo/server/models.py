"""GET /v1/models"""

from __future__ import annotations

import time

from starlette.responses import JSONResponse, Response

from octavo.server.context import ServerContext

_STARTED = int(time.time())


def list_models(context: ServerContext) -> Response:
    """The served model, under each of its names."""
    return JSONResponse({"object": "list", "data": [_model(context, name) for name in context.names]})


def get_model(context: ServerContext, name: str) -> Response:
    """One of its names; 404 for others."""
    context.check_model(name)
    return JSONResponse(_model(context, name))


def _model(context: ServerContext, name: str) -> dict[str, object]:
    return {
        "id": name,
        "object": "model",
        "created": _STARTED,
        "owned_by": "octavo",
        "max_model_len": context.llm.loaded.max_model_len,
    }

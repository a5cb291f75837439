"""The application: routes, middleware, errors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.routing import APIRouter
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse, Response

from octavo import __version__
from octavo.async_llm import AsyncLLM
from octavo.server import health, models, observe_routes, tokenization
from octavo.server.auth import KeyGuard
from octavo.server.chat import chat
from octavo.server.completions import complete
from octavo.server.context import ServerContext
from octavo.server.errors import ApiError, as_api_error
from octavo.server.fields import ChatFields, CompletionFields, DetokenizeFields, Fields, TokenizeFields
from octavo.server.generation import IGNORED_HEADER
from octavo.server.options import ServerOptions
from octavo.server.request_log import RequestLog, log, note

_ERROR_SCHEMA = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}
_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"description": text, "content": {"application/json": {"schema": _ERROR_SCHEMA}}}
    for status, text in {
        400: "The request is wrong: field, value and limit are named",
        401: "No valid API key",
        404: "No such model",
        408: "The body did not arrive in time",
        413: "The body is too large",
        415: "The body is not application/json",
        429: "The queue is full; see Retry-After",
        500: "The request failed on the server",
        503: "The server is shutting down",
        504: "The deadline has passed",
    }.items()
}


_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The answer; server-sent events with stream=true",
        "content": {"application/json": {"schema": {"type": "object"}}, "text/event-stream": {}},
    }
}


def create_app(llm: AsyncLLM, options: ServerOptions | None = None) -> FastAPI:
    """The server over a model that runs. The caller closes the AsyncLLM after the server has ended."""
    options = options or ServerOptions()
    context = ServerContext(llm, options)
    # The pages of documentation load scripts from elsewhere, so there are none; /openapi.json stays.
    app = FastAPI(title="Octavo", version=__version__, docs_url=None, redoc_url=None)
    app.state.context = context
    routers = (_router(context), observe_routes.router_for(context))
    for router in routers:
        app.include_router(router)
    app.add_exception_handler(ApiError, _handle)
    app.add_exception_handler(ValueError, _handle)
    app.add_exception_handler(HTTPException, _handle_http)
    app.add_exception_handler(Exception, _handle_unknown)
    # The last one added is the outermost.
    if options.api_keys:
        app.add_middleware(KeyGuard, keys=options.api_keys)
    if options.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(options.cors_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type", "x-request-id", "x-request-timeout"],
            expose_headers=["x-request-id", IGNORED_HEADER, "retry-after"],
        )
    app.add_middleware(RequestLog, counts=context.counts, paths=_paths(routers))
    return app


def _paths(routers: Iterable[APIRouter]) -> frozenset[str]:
    """Of all routes without parameters."""
    return frozenset(
        path for router in routers for route in router.routes if "{" not in (path := getattr(route, "path", "{"))
    )


def _router(context: ServerContext) -> APIRouter:
    router = APIRouter(responses=_ERRORS)

    @router.post("/v1/chat/completions", responses=_ANSWERS, openapi_extra=_body(ChatFields))
    async def chat_completions(request: Request) -> Response:
        return await chat(request, context)

    @router.post("/v1/completions", responses=_ANSWERS, openapi_extra=_body(CompletionFields))
    async def completions(request: Request) -> Response:
        return await complete(request, context)

    @router.post("/tokenize", openapi_extra=_body(TokenizeFields))
    async def tokenize(request: Request) -> Response:
        return await tokenization.tokenize(request, context)

    @router.post("/detokenize", openapi_extra=_body(DetokenizeFields))
    async def detokenize(request: Request) -> Response:
        return await tokenization.detokenize(request, context)

    @router.get("/v1/models")
    async def list_models() -> Response:
        return models.list_models(context)

    @router.get("/v1/models/{name:path}")
    async def get_model(name: str) -> Response:
        return models.get_model(context, name)

    @router.get("/health/live")
    async def live() -> Response:
        return health.live()

    @router.get("/health/ready")
    async def ready() -> Response:
        return health.ready(context)

    return router


def _body(fields: type[Fields]) -> dict[str, Any]:
    schema = fields.model_json_schema()
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


async def _handle(request: Request, error: Exception) -> Response:
    """What a route refuses."""
    told = as_api_error(error, started=False)
    note(request.scope, error=told.message)
    return told.response()


async def _handle_http(request: Request, error: Exception) -> Response:
    """Unknown paths and methods, in the same shape."""
    assert isinstance(error, HTTPException)
    told = ApiError(error.status_code, str(error.detail), code="not_found" if error.status_code == 404 else None)
    return JSONResponse(told.body, error.status_code, error.headers)


async def _handle_unknown(request: Request, error: Exception) -> Response:
    """A fault of the server: the client gets no details of it."""
    log("fault", path=request.url.path, error=f"{type(error).__name__}: {error}")
    return ApiError(500, "the server failed at this request", code="internal_error").response()

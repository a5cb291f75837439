"""The application: routes, middleware, errors."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from octavo import __version__
from octavo.async_llm import AsyncLLM
from octavo.server import health, models, observe_routes, tokenization
from octavo.server.auth import KeyGuard
from octavo.server.chat import chat
from octavo.server.completions import complete
from octavo.server.context import ServerContext
from octavo.server.endpoint import Endpoint, openapi_document
from octavo.server.errors import ApiError, as_api_error
from octavo.server.fields import ChatFields, CompletionFields, DetokenizeFields, TokenizeFields
from octavo.server.generation import IGNORED_HEADER
from octavo.server.options import ServerOptions
from octavo.server.request_log import RequestLog, log, note

_COMPLETION = {
    "description": "The answer; server-sent events with stream=true",
    "content": {"application/json": {"schema": {"type": "object"}}, "text/event-stream": {}},
}


def create_app(llm: AsyncLLM, options: ServerOptions | None = None) -> Starlette:
    """The server over a model that runs. The caller closes the AsyncLLM after the server has ended."""
    options = options or ServerOptions()
    context = ServerContext(llm, options)
    endpoints = [*_endpoints(context), *observe_routes.endpoints_for(context)]
    app = Starlette(routes=[*endpoints, _document_of(endpoints)])
    app.state.context = context
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
    paths = frozenset(endpoint.path for endpoint in endpoints if "{" not in endpoint.path)
    app.add_middleware(RequestLog, counts=context.counts, paths=paths)
    return app


def _endpoints(context: ServerContext) -> list[Endpoint]:
    async def chat_completions(request: Request) -> Response:
        return await chat(request, context)

    async def completions(request: Request) -> Response:
        return await complete(request, context)

    async def tokenize(request: Request) -> Response:
        return await tokenization.tokenize(request, context)

    async def detokenize(request: Request) -> Response:
        return await tokenization.detokenize(request, context)

    async def list_models(request: Request) -> Response:
        return models.list_models(context)

    async def get_model(request: Request) -> Response:
        return models.get_model(context, request.path_params["name"])

    async def live(request: Request) -> Response:
        return health.live()

    async def ready(request: Request) -> Response:
        return health.ready(context)

    return [
        Endpoint("POST", "/v1/chat/completions", chat_completions, "Answer a conversation", _COMPLETION, ChatFields),
        Endpoint("POST", "/v1/completions", completions, "Continue a text", _COMPLETION, CompletionFields),
        Endpoint("POST", "/tokenize", tokenize, "A text's tokens", fields=TokenizeFields),
        Endpoint("POST", "/detokenize", detokenize, "The text of tokens", fields=DetokenizeFields),
        Endpoint("GET", "/v1/models", list_models, "The models"),
        Endpoint("GET", "/v1/models/{name:path}", get_model, "One model"),
        Endpoint("GET", "/health/live", live, "Whether the process answers"),
        Endpoint("GET", "/health/ready", ready, "Whether requests are taken"),
    ]


def _document_of(endpoints: list[Endpoint]) -> Endpoint:
    async def openapi(request: Request) -> Response:
        return JSONResponse(openapi_document(endpoints, __version__))

    return Endpoint("GET", "/openapi.json", openapi)


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

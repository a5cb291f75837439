"""Routes with what the OpenAPI document says of them, and that document."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from octavo.server.fields import Fields

ANY_JSON: dict[str, Any] = {
    "description": "The answer",
    "content": {"application/json": {"schema": {}}},
}
ANY_TEXT: dict[str, Any] = {"description": "The answer"}

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
_ERRORS = {
    status: {"description": text, "content": {"application/json": {"schema": _ERROR_SCHEMA}}}
    for status, text in {
        "400": "The request is wrong: field, value and limit are named",
        "401": "No valid API key",
        "404": "No such model",
        "408": "The body did not arrive in time",
        "413": "The body is too large",
        "415": "The body is not application/json",
        "429": "The queue is full; see Retry-After",
        "500": "The request failed on the server",
        "503": "The server is shutting down",
        "504": "The deadline has passed",
    }.items()
}


class Endpoint(Route):
    """One method at one path."""

    def __init__(
        self,
        method: str,
        path: str,
        handler: Callable[[Request], Awaitable[Response]],
        summary: str | None = None,
        answer: dict[str, Any] = ANY_JSON,
        fields: type[Fields] | None = None,
    ) -> None:
        """summary: without one the document leaves it out; answer: of status 200; fields: of the body."""
        super().__init__(path, handler, methods=[method], include_in_schema=summary is not None)
        self.methods = {method}  # HEAD of a stream of events would not end
        self._summary = summary
        self._answer = answer
        self._fields = fields

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As Route does; the log finds the route in the scope."""
        scope["route"] = self
        await super().handle(scope, receive, send)

    def operation(self) -> dict[str, Any]:
        """What the document says of it."""
        said: dict[str, Any] = {"summary": self._summary, "operationId": self.name}
        if self.param_convertors:
            said["parameters"] = [
                {"in": "path", "name": name, "required": True, "schema": {"type": "string"}}
                for name in self.param_convertors
            ]
        if self._fields is not None:
            schema = self._fields.model_json_schema()
            said["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
        said["responses"] = {"200": self._answer, **_ERRORS}
        return said


def openapi_document(endpoints: Iterable[Endpoint], version: str) -> dict[str, Any]:
    """Made when somebody asks for it: few do, and the schemas take memory."""
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        if endpoint.include_in_schema:
            for method in endpoint.methods or ():
                paths.setdefault(endpoint.path_format, {})[method.lower()] = endpoint.operation()
    return {"openapi": "3.1.0", "info": {"title": "Octavo", "version": version}, "paths": paths}

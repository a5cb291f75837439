"""Errors in the shape that OpenAI's clients read."""

from __future__ import annotations

import re
from collections.abc import Mapping

from starlette.responses import JSONResponse, Response

from octavo.request_driver import EngineError

MAX_SHOWN = 80
_FIELD = re.compile(r"[a-z_]+(\[\d+\])*(\.[a-z_]+(\[\d+\])*)*")
_TYPES = {
    401: "authentication_error",
    404: "not_found_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "service_unavailable_error",
    504: "timeout_error",
}


class ApiError(Exception):
    """What the client is told: a status, a message, and the field at fault."""

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = dict(headers or {})

    @property
    def body(self) -> dict[str, object]:
        kind = _TYPES.get(self.status, "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> Response:
        return JSONResponse(self.body, self.status, self.headers)


def bad_request(message: str, param: str | None = None) -> ApiError:
    """A 400; the field at fault is the first word of the message unless it is given."""
    if param is None:
        match = _FIELD.match(message)
        param = match[0] if match else None
    return ApiError(400, message, param, "invalid_value")


def unsupported(field: str, why: str = "is not supported") -> ApiError:
    """A 400 for a field that is known and that this server does not do."""
    return ApiError(400, f"{field}: {why}", field, "unsupported_parameter")


def as_api_error(error: Exception, started: bool) -> ApiError:
    """What a failed request's client is told. `started`: it had an answer already, so it was a good one."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, ValueError) and not started:
        return bad_request(str(error))
    if isinstance(error, EngineError) and "closed" in str(error):
        return ApiError(503, "the server is shutting down", code="shutting_down")
    return ApiError(500, f"the request failed: {error}", code="internal_error")


def short(value: object) -> str:
    """A value as a message shows it."""
    try:
        text = repr(value)
    except ValueError:  # an integer of more digits than Python prints
        text = "a very long integer"
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."

"""What chat and completions have in common on the way from a body to an answer."""

from __future__ import annotations

import math
import re
from typing import Any

from starlette.requests import Request

from octavo.server.context import ServerContext
from octavo.server.errors import bad_request
from octavo.server.fields import GenerationFields

TIMEOUT_HEADER = "x-request-timeout"
IGNORED_HEADER = "X-Octavo-Ignored"
_GOOD_NAME = re.compile(r"[A-Za-z0-9_.\[\]-]{1,64}")
_MOST_NAMES = 20


def deadline_seconds(request: Request, fields: GenerationFields, context: ServerContext) -> float:
    """The least of the field `timeout`, the header X-Request-Timeout and the server's limit."""
    wanted = [context.options.request_seconds]
    if fields.timeout is not None:
        wanted.append(_seconds("timeout", fields.timeout))
    header = request.headers.get(TIMEOUT_HEADER)
    if header is not None:
        try:
            wanted.append(_seconds(TIMEOUT_HEADER, float(header)))
        except ValueError:
            raise bad_request(f"{TIMEOUT_HEADER} is {header[:40]!r}, must be seconds", TIMEOUT_HEADER) from None
    return min(wanted)


def ignored_header(names: list[str]) -> dict[str, str]:
    """The warning about fields that are not known: nothing is ignored in silence."""
    if not names:
        return {}
    shown = [name if _GOOD_NAME.fullmatch(name) else "?" for name in names[:_MOST_NAMES]]
    return {IGNORED_HEADER: ", ".join(shown) + (", ..." if len(names) > _MOST_NAMES else "")}


def salt_fields(fields: GenerationFields) -> dict[str, Any]:
    """The prompt's cache_salt, where there is one."""
    return {} if fields.cache_salt is None else {"cache_salt": fields.cache_salt}


def _seconds(name: str, value: float) -> float:
    if not 0 < value < math.inf:
        raise bad_request(f"{name} is {value!r}, must be a number of seconds above 0", name)
    return value

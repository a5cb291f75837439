"""Reading a request's body: within a size and a time, as strict JSON."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any, NoReturn

from starlette.requests import ClientDisconnect, Request

from octavo.server.errors import ApiError, bad_request

_TYPE = "application/json"
_LARGE = 65_536
"""Bytes from which on a body is parsed off the event loop"""
MAX_DEPTH = 100
"""How deep arrays and objects may nest"""


async def read_json_object(request: Request, max_bytes: int, seconds: float) -> dict[str, Any]:
    """The body as a JSON object. ApiError 400, 408, 413 or 415 says what is wrong with it.

    Only application/json: a web page of another origin cannot send that without asking first.
    """
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind != _TYPE:
        raise ApiError(415, f"content-type is {kind[:80]!r}, must be {_TYPE}", "content-type")
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length[:20]) > max_bytes:
        raise _too_large(max_bytes)
    try:
        async with asyncio.timeout(seconds):
            data = await _read(request, max_bytes)
    except TimeoutError:
        raise ApiError(408, f"the body did not arrive within {seconds:g} s") from None
    except ClientDisconnect:
        raise ApiError(400, "the client left before its body was complete") from None
    return parse_json_object(data) if len(data) < _LARGE else await asyncio.to_thread(parse_json_object, data)


async def _read(request: Request, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > max_bytes:
            raise _too_large(max_bytes)
        parts.append(part)
    return b"".join(parts)


def parse_json_object(data: bytes) -> dict[str, Any]:
    """Strict JSON: UTF-8, no name twice, no NaN, nothing infinite, no lone surrogates, at most MAX_DEPTH deep."""
    try:
        text = data.decode("utf-8")
        value = json.loads(
            text, parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_without_repetition
        )
    except UnicodeDecodeError as error:
        raise bad_request(f"body: is not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise bad_request(f"body: is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise bad_request(f"body: must be a JSON object, not {type(value).__name__}")
    if text.count("[") + text.count("{") > MAX_DEPTH:
        _check_depth(value)
    if ("\\ud" in text or "\\uD" in text) and not _is_unicode(value):  # only an escape can make one
        _check_surrogates(value)
    return value


def _too_deep() -> ApiError:
    return bad_request(f"body: nests deeper than the limit of {MAX_DEPTH}")


def _too_large(max_bytes: int) -> ApiError:
    return ApiError(413, f"body: is larger than the limit of {max_bytes} bytes", "body", "body_too_large")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"{digits[:40]} is beyond any finite number")
    return value


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {twice[:40]!r} is there twice")
    return result


def _check_depth(root: dict[str, Any]) -> None:
    level: list[Any] = [root]
    for _ in range(MAX_DEPTH):
        inner = [value.values() if isinstance(value, dict) else value for value in level]
        level = [entry for entries in inner for entry in entries if isinstance(entry, dict | list)]
        if not level:
            return
    raise _too_deep()


def _is_unicode(value: Any) -> bool:
    """Quick, where looking at each text would take seconds."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_surrogates(root: Any) -> None:
    waiting: list[tuple[str, Any]] = [("", root)]
    while waiting:
        where, value = waiting.pop()
        if isinstance(value, dict):
            for key, entry in value.items():
                _check_text(key, f"a name in {where or 'the body'}")
                waiting.append((f"{where}.{key}" if where else key, entry))
        elif isinstance(value, list):
            waiting += [(f"{where}[{place}]", entry) for place, entry in enumerate(value)]
        elif isinstance(value, str):
            _check_text(value, where)


def _check_text(text: str, where: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        message = f"{where}: character {error.start} is the lone surrogate U+{code:04X}, which is no text"
        raise bad_request(message, where) from None

"""Chat messages as clients send them -> as chat templates take them."""

from __future__ import annotations

import json
from typing import Any

from octavo.server.errors import bad_request, unsupported

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
"""Role of the API -> role of the template"""
_KNOWN = frozenset({"role", "content", "name", "tool_calls", "tool_call_id"})


def read_messages(messages: Any, ignored: list[str]) -> list[dict[str, Any]]:
    """Checked messages; the names of unknown fields are added to `ignored`. ApiError 400 names the field."""
    if not isinstance(messages, list):
        raise bad_request(f"messages: must be a list, not {type(messages).__name__}")
    if not messages:
        raise bad_request("messages: must hold at least one message")
    return [_read_message(message, f"messages[{place}]", ignored) for place, message in enumerate(messages)]


def _read_message(message: Any, where: str, ignored: list[str]) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise bad_request(f"{where}: must be an object", where)
    given = {name: value for name, value in message.items() if value is not None}
    role = given.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise bad_request(f"{where}.role: is {str(role)[:40]!r}, must be one of {', '.join(ROLES)}", f"{where}.role")
    ignored += [f"{where}.{name}" for name in given if name not in _KNOWN]
    result: dict[str, Any] = {"role": ROLES[role]}
    for name in ("name", "tool_call_id"):
        if name in given:
            if not isinstance(given[name], str):
                raise bad_request(f"{where}.{name}: must be text", f"{where}.{name}")
            result[name] = given[name]
    if "tool_calls" in given:
        if role != "assistant":
            raise bad_request(f"{where}.tool_calls: only an assistant's message has them", f"{where}.tool_calls")
        result["tool_calls"] = _read_tool_calls(given["tool_calls"], f"{where}.tool_calls")
    if "content" in given:
        result["content"] = _read_content(given["content"], f"{where}.content")
    elif result.get("tool_calls"):
        result["content"] = None
    else:
        raise bad_request(f"{where}.content: must be text or a list of text parts", f"{where}.content")
    return result


def _read_content(content: Any, where: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        raise bad_request(f"{where}: must be text or a list of text parts", where)
    texts = []
    for place, part in enumerate(content):
        name = f"{where}[{place}]"
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(kind, str) and kind != "text":
            raise unsupported(name, f"parts of type {kind[:40]!r} are not supported, only text is")
        if kind is None or not isinstance(part.get("text"), str):
            raise bad_request(f'{name}: must be {{"type": "text", "text": ...}}', name)
        texts.append(part["text"])
    return "\n".join(texts)


def _read_tool_calls(calls: Any, where: str) -> list[dict[str, Any]]:
    """Calls of earlier turns. Templates take the arguments as an object, clients send them as JSON text."""
    if not isinstance(calls, list):
        raise bad_request(f"{where}: must be a list", where)
    result = []
    for place, call in enumerate(calls):
        function = call.get("function") if isinstance(call, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(function, dict) or not isinstance(name, str):
            raise bad_request(f"{where}[{place}].function: must be an object with a name", where)
        arguments = function.get("arguments", "{}")
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments or "{}")
            except (ValueError, RecursionError):
                raise bad_request(f"{where}[{place}].function.arguments: is not JSON", where) from None
        result.append({**call, "type": "function", "function": {"name": name, "arguments": arguments}})
    return result

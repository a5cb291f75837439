"""Chat messages as clients send them -> as chat templates take them."""

from __future__ import annotations

from typing import Any

from octavo.server.body import parse_json_object
from octavo.server.errors import ApiError, bad_request, unsupported
from octavo.text.chat_messages import copy_value

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
    return [_read_tool_call(call, f"{where}[{place}]") for place, call in enumerate(calls)]


def _read_tool_call(call: Any, where: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(function, dict) or not isinstance(name, str):
        raise bad_request(f"{where}.function: must be an object with a name", f"{where}.function")
    if call.get("type", "function") != "function":
        raise unsupported(f"{where}.type", "must be function")
    result: dict[str, Any] = {"type": "function"}
    if call.get("id") is not None:
        if not isinstance(call["id"], str):
            raise bad_request(f"{where}.id: must be text", f"{where}.id")
        result["id"] = call["id"]
    arguments = _read_arguments(function.get("arguments") or "{}", f"{where}.function.arguments")
    return {**result, "function": {"name": name, "arguments": arguments}}


def _read_arguments(arguments: Any, where: str) -> dict[str, Any]:
    if isinstance(arguments, str):
        try:
            arguments = parse_json_object(arguments.encode())
        except ApiError as error:
            raise bad_request(f"{where}: {error.message.removeprefix('body: ')}", where) from None
    if not isinstance(arguments, dict):
        raise bad_request(f"{where}: must be the text of a JSON object", where)
    copy_value(arguments, where)  # refuses what nests too deeply
    return arguments

"""Conversations with functions, as the model's chat template takes them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from octavo.tools.formats import ToolFormat
from octavo.tools.style import ToolStyle

Message = Mapping[str, Any]
_MISTRAL_ID = re.compile("[A-Za-z0-9]{9}")


def prepare_conversation(
    messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None, style: ToolStyle
) -> tuple[list[dict[str, Any]], list[dict[str, Any]] | None]:
    """(messages, tools) for the template. Where it takes no tools, these and all calls and results become text:
    then there is a system message that describes them, and no two messages of a user follow each other."""
    prepared = [dict(message) for message in messages]
    if style.native:
        if style.format.name.startswith("mistral"):
            prepared = [_with_short_ids(message) for message in prepared]
        return prepared, [dict(tool) for tool in tools] if tools else None
    if not tools and not any(message.get("role") == "tool" or message.get("tool_calls") for message in prepared):
        return prepared, None
    prepared = _merge([_as_text(message, style.format) for message in prepared])
    if tools:
        about = describe_tools(tools, style.format)
        if prepared[0]["role"] == "system":
            prepared[0] = {**prepared[0], "content": f"{prepared[0]['content']}\n\n{about}"}
        else:
            prepared.insert(0, {"role": "system", "content": about})
    return prepared, None


def describe_tools(tools: Sequence[Mapping[str, Any]], form: ToolFormat) -> str:
    """What a model is told that was not made for calls, or for another way of writing them."""
    functions = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
    call = form.write([("function_name", {"argument_name": "value"})])
    return (
        "You can call functions. Each line describes one of them, with a JSON schema of its arguments:\n"
        f"{functions}\n\n"
        f"To call a function, write its name and its arguments in this way:\n{call}\n\n"
        f"The result comes in this way:\n{form.result_begin}result{form.result_end}\n\n"
        "Call a function where it helps to answer; else answer in words."
    )


def _as_text(message: Message, form: ToolFormat) -> dict[str, Any]:
    """A call becomes the assistant's text, a result the user's."""
    if message.get("role") == "tool":
        return {"role": "user", "content": f"{form.result_begin}{_text(message)}{form.result_end}"}
    result = {key: value for key, value in message.items() if key != "tool_calls"}
    if message.get("tool_calls"):
        calls = [(call["function"]["name"], call["function"].get("arguments", {})) for call in message["tool_calls"]]
        result["content"] = "\n".join(part for part in (_text(message), form.write(calls)) if part)
    return result


def _text(message: Message) -> str:
    """Content as text, joined where it comes in parts."""
    content = message.get("content")
    if isinstance(content, str) or content is None:
        return content or ""
    return "\n".join(part["text"] for part in content)


def _merge(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Joins a user's messages that follow each other: templates may insist on turns."""
    merged: list[dict[str, Any]] = []
    for message in messages:
        if merged and message["role"] == "user" == merged[-1]["role"]:
            merged[-1] = {**merged[-1], "content": f"{_text(merged[-1])}\n{_text(message)}"}
        else:
            merged.append(message)
    return merged


def _with_short_ids(message: dict[str, Any]) -> dict[str, Any]:
    """Mistral's templates take ids of 9 letters and digits only. The same id gives the same one."""
    if "tool_call_id" in message:
        message["tool_call_id"] = _short_id(message["tool_call_id"])
    if message.get("tool_calls"):
        message["tool_calls"] = [
            {**call, "id": _short_id(call["id"])} if "id" in call else call for call in message["tool_calls"]
        ]
    return message


def _short_id(name: str) -> str:
    return name if _MISTRAL_ID.fullmatch(name) else hashlib.sha256(name.encode()).hexdigest()[:9]

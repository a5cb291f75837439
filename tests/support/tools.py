"""Tools to offer, and the message that a stream makes."""

from __future__ import annotations

from typing import Any

ADD: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds two numbers",
        "parameters": {
            "type": "object",
            "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
            "required": ["x", "y"],
        },
    },
}
LOOK_UP: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "What a word means",
        "parameters": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
    },
}


def joined(events: list[dict[str, Any]], index: int) -> dict[str, Any]:
    """{"message", "finish_reason"} of one choice, its deltas joined as clients join them."""
    message: dict[str, Any] = {}
    reason = None
    for choice in (choice for event in events for choice in event["choices"] if choice["index"] == index):
        assert reason is None, "nothing follows the end"
        reason = choice["finish_reason"]
        delta = choice["delta"]
        if "role" in delta:
            message = {"role": delta["role"], "content": delta["content"]}
        elif "content" in delta:
            message["content"] = (message["content"] or "") + delta["content"]
        for part in delta.get("tool_calls", []):
            calls = message.setdefault("tool_calls", [])
            if "id" in part:
                assert part["index"] == len(calls), "indices count up"
                calls.append({"id": part["id"], "type": part["type"], "function": dict(part["function"])})
            else:
                calls[part["index"]]["function"]["arguments"] += part["function"]["arguments"]
    return {"message": message, "finish_reason": reason}

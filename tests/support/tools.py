"""Tools to offer, and the message that a stream makes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from small_model import make_small_model

from octavo.tools.formats import ToolFormat

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


SIGNS = {
    "hermes": '<tool_call> "arguments"',
    "llama3": '<|start_header_id|> "parameters"',
    "mistral": "[TOOL_CALLS]",
    "mistral-args": "[TOOL_CALLS] [ARGS]",
}
"""What tells a format, in a chat template that takes tools"""


def make_tool_model(target: Path, form: ToolFormat) -> Path:
    """The small model with a longer context, line breaks, a template that tells `form`, and its markers as control
    tokens."""
    make_small_model(target, has_bytes=True)
    tokenizer = json.loads((target / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["\n"] = vocabulary.pop("^")
    for letter, marker in zip("#$", form.markers, strict=False):
        vocabulary[marker] = vocabulary.pop(letter)
        special = tokenizer["added_tokens"][0]
        tokenizer["added_tokens"].append({**special, "id": vocabulary[marker], "content": marker})
    (target / "tokenizer.json").write_text(json.dumps(tokenizer))
    names = json.loads((target / "tokenizer_config.json").read_text())
    names["chat_template"] = f"{{# tools {SIGNS[form.name]} #}}" + names["chat_template"]
    (target / "tokenizer_config.json").write_text(json.dumps(names))
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 512}))
    return target

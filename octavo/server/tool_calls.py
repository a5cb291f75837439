"""One choice of an answer that may hold calls, as OpenAI's clients read it."""

from __future__ import annotations

import secrets
from typing import Any

from octavo.outputs import CompletionOutput
from octavo.server.tool_fields import ToolUse
from octavo.tools.formats import ToolFormat
from octavo.tools.parser import ToolDelta, ToolParser


class CallReader:
    """Reads one choice. Its deltas join to its message."""

    def __init__(self, form: ToolFormat, use: ToolUse, drop_space: bool) -> None:
        """`drop_space`: a space at the very beginning is none of the text, but the tokenizer's way to begin one."""
        self._parser = ToolParser(form)
        self._drop_space = drop_space
        self._named = use.choice == "named"
        self._ids: list[str] = []

    def deltas(self, text: str, completion: CompletionOutput) -> list[dict[str, Any]]:
        """What `text`, the newest part of the choice's, adds; at most one call in each."""
        if text and self._drop_space:
            text, self._drop_space = text.removeprefix(" "), False
        found = self._parser.feed(text)
        if completion.finished:
            found += self._parser.finish(cut=completion.finish_reason != "stop" or completion.stop_reason is not None)
        deltas = [self._delta_json(delta) for delta in found]
        if completion.finished and not (self._parser.content or self._parser.calls):
            deltas.append({"content": ""})
        return deltas

    def message(self, completion: CompletionOutput) -> dict[str, Any]:
        """The whole choice; nothing may have been read of it."""
        self.deltas(completion.text, completion)
        calls = [
            {"id": self._id(place), "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for place, call in enumerate(self._parser.calls)
        ]
        content = self._parser.content
        message: dict[str, Any] = {"role": "assistant", "content": content or (None if calls else ""), "refusal": None}
        return {**message, "tool_calls": calls} if calls else message

    def finish_reason(self, completion: CompletionOutput) -> str | None:
        """tool_calls where the model ended after calls, but stop where the function was named, as OpenAI has it;
        an answer that was cut says so."""
        whole = completion.finish_reason == "stop" and not self._parser.in_call
        return "tool_calls" if whole and self._parser.calls and not self._named else completion.finish_reason

    def _delta_json(self, delta: ToolDelta) -> dict[str, Any]:
        if delta.call is None:
            return {"content": delta.content}
        if delta.name is None:
            return {"tool_calls": [{"index": delta.call, "function": {"arguments": delta.arguments}}]}
        function = {"name": delta.name, "arguments": delta.arguments}
        return {
            "tool_calls": [{"index": delta.call, "id": self._id(delta.call), "type": "function", "function": function}]
        }

    def _id(self, call: int) -> str:
        while len(self._ids) <= call:
            self._ids.append(f"call_{secrets.token_hex(12)}")
        return self._ids[call]

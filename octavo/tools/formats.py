"""How the families of models write calls."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MAX_CALLS = 32
"""Calls of one answer; a small model that repeats itself ends there"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFormat:
    """The exact text of calls. An answer with calls is

        text begin opening CALL (between_calls CALL)* end      with CALL = before NAME middle ARGUMENTS after

    where ARGUMENTS is a JSON object written as Python writes it: `, ` and `: `, no line breaks.
    """

    name: str
    begin: str
    """Wherever this stands in an answer, calls begin"""
    opening: str = ""
    before: str = '{"name": "'
    middle: str
    after: str = "}"
    between_calls: str | None
    """May begin with `end`. None: this family makes one call at a time"""
    end: str
    markers: tuple[str, ...]
    """Parts of the above that may be control tokens of the model"""
    starts_bare: bool = False
    """An answer that starts with `before` is a call too, without `begin`"""
    result_begin: str = "<tool_response>\n"
    """Around a call's result, where it is told in a user's message"""
    result_end: str = "\n</tool_response>"

    def write(self, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
        """(name, arguments) of calls as the model would have written them."""
        texts = [
            f"{self.before}{name}{self.middle}{json.dumps(arguments, ensure_ascii=False)}{self.after}"
            for name, arguments in calls
        ]
        begin = "" if self.starts_bare else self.begin + self.opening
        return begin + (self.between_calls or "\n").join(texts) + self.end


FORMATS = {
    each.name: each
    for each in (
        ToolFormat(
            name="hermes",
            begin="<tool_call>",
            opening="\n",
            middle='", "arguments": ',
            between_calls="\n</tool_call>\n<tool_call>\n",
            end="\n</tool_call>",
            markers=("<tool_call>", "</tool_call>"),
        ),
        ToolFormat(
            name="llama3",
            begin="<|python_tag|>",
            middle='", "parameters": ',
            between_calls=None,  # the family's templates refuse messages with two calls
            end="",
            markers=("<|python_tag|>",),
            starts_bare=True,
        ),
        ToolFormat(
            name="mistral",
            begin="[TOOL_CALLS]",
            opening="[",
            middle='", "arguments": ',
            between_calls=", ",
            end="]",
            markers=("[TOOL_CALLS]",),
        ),
        ToolFormat(
            name="mistral-args",
            begin="[TOOL_CALLS]",
            before="",
            middle="[ARGS]",
            after="",
            between_calls="[TOOL_CALLS]",
            end="",
            markers=("[TOOL_CALLS]", "[ARGS]"),
        ),
        ToolFormat(
            name="gemma",
            begin="```tool_code\n",
            middle='", "parameters": ',
            between_calls="\n```\n```tool_code\n",
            end="\n```",
            markers=(),
            result_begin="```tool_output\n",
            result_end="\n```",
        ),
    )
}
"""By name"""

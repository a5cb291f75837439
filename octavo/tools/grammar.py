"""The grammar of an answer that may, or must, hold calls, as llguidance reads it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from octavo.guidance.grammar import json_rule
from octavo.tools.formats import MAX_CALLS, ToolFormat
from octavo.tools.functions import Function

# Arguments are written as models have seen them: as Python writes JSON.
_SPACING = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": ", "lenient": False}
_RULE = "call_"


def calls_grammar(
    form: ToolFormat,
    functions: Sequence[Function],
    control: Mapping[str, int],
    *,
    required: bool,
    parallel: bool,
    text_schema: Mapping[str, Any] | None = None,
) -> str:
    """A Lark grammar: calls alone where they are required, else text that may end in calls.

    `control`: spelling -> id of the model's control tokens. A marker that is one is forced as that token; text
    can hold no control token. `text_schema`: an answer without calls is JSON of this schema. ValueError where it
    could not be told from a call.
    """
    lines = [*_start(form, control, required, text_schema), *_calls(form, functions, control, parallel)]
    return "\n".join(lines) + "\n"


def function_at(grammar: str, line: int) -> int | None:
    """Whose arguments a line of a grammar is about, from 1: the place among the functions; None for other lines."""
    rule, _, _ = (grammar.splitlines()[line - 1 : line] or [""])[0].partition(":")
    number = rule.removeprefix(_RULE)
    return int(number) if number != rule and number.isdigit() else None


def _start(
    form: ToolFormat, control: Mapping[str, int], required: bool, text_schema: Mapping[str, Any] | None
) -> list[str]:
    begin = _literal(form.begin + form.opening, form, control)
    direct = "calls" if form.starts_bare else f"{begin} calls"
    if required:
        return [f"start: {direct}"]
    if text_schema is not None:
        if form.starts_bare or (form.begin[0] in '{["' and form.begin not in control):
            raise ValueError(
                f"response_format: goes with tools only where calls do not look like JSON, as {form.name} does"
            )
        return [f"start: answer | {direct}", f"answer: {json_rule(text_schema)}"]
    ways = ["TEXT?", f"head {_literal(form.opening, form, control)} calls"]
    if form.begin in control:
        ways.append(f"TEXT? {begin} calls")
    no_call = ""
    if form.starts_bare:
        ways.append("calls")
        no_call = f" & ~/{_regex(form.before)}(?s:.*)/"
    return [
        f"start: {' | '.join(ways)}",
        f"TEXT: /(?s:.+)/{no_call}",
        f"HEAD: /(?s:.*){_regex(form.begin)}/{no_call}",
        "head[lazy]: HEAD",
    ]


def _calls(form: ToolFormat, functions: Sequence[Function], control: Mapping[str, int], parallel: bool) -> list[str]:
    more = ""
    if parallel and form.between_calls is not None:
        more = f" ({_literal(form.between_calls, form, control)} call){{0,{MAX_CALLS - 1}}}"
    lines = [
        f"calls: call{more} {_literal(form.end, form, control)}".rstrip(),
        f"call: {' | '.join(f'{_RULE}{place}' for place in range(len(functions)))}",
    ]
    for place, function in enumerate(functions):
        head = _literal(f"{form.before}{function.name}{form.middle}", form, control)
        schema = json.dumps({**function.arguments_schema(), "x-guidance": _SPACING}, ensure_ascii=False)
        after = _literal(form.after, form, control)
        lines.append(f"{_RULE}{place}: {head} %json {schema} {after}".rstrip())
    return lines


def _literal(text: str, form: ToolFormat, control: Mapping[str, int]) -> str:
    """A fixed text; markers that are control tokens are named by id."""
    tokens = [marker for marker in form.markers if marker in control]
    if not tokens:
        return json.dumps(text) if text else ""
    pieces = re.split("(" + "|".join(map(re.escape, tokens)) + ")", text)
    return " ".join(f"<[{control[piece]}]>" if piece in tokens else json.dumps(piece) for piece in pieces if piece)


def _regex(text: str) -> str:
    """Matches exactly `text`, inside slashes."""
    return "".join(letter if letter.isalnum() else f"\\x{ord(letter):02x}" for letter in text)

"""The form of an answer that may hold calls."""

from __future__ import annotations

import json
import re
from typing import Any

from octavo.server.context import ServerContext
from octavo.server.errors import bad_request
from octavo.server.fields import ChatFields
from octavo.server.structured import in_words_of
from octavo.server.tool_fields import ToolUse
from octavo.structured_outputs import StructuredOutputsParams
from octavo.tools.grammar import calls_grammar, function_at

_AT_LINE = re.compile(r"\bat (\d+)\(\d+\): (?:failed to compile JSON schema: )?(.*)", re.DOTALL)


def call_params(
    use: ToolUse, fields: ChatFields, context: ServerContext, wanted: StructuredOutputsParams | None, asked_by: str
) -> dict[str, Any]:
    """Sampling parameters under which calls are always of their format, and other text as `wanted` says, which the
    field `asked_by` asks for. ApiError 400 for what does not go with tools."""
    if fields.include_stop_str_in_output:
        raise bad_request("include_stop_str_in_output: may not be given with tools")
    text_schema = None
    if wanted is not None:
        if not asked_by.startswith("response_format"):
            raise bad_request(f"{asked_by}: may not be given with tools", asked_by)
        text_schema = json.loads(wanted.json) if isinstance(wanted.json, str) else {"type": "object"}
    style, control = context.reader.tool_style, context.tokenizer.control_tokens
    # A model that learns of calls from the prompt tends to repeat its first one.
    parallel = style.native if use.parallel is None else use.parallel
    try:
        grammar = calls_grammar(
            style.format, use.callable, control, required=use.required, parallel=parallel, text_schema=text_schema
        )
        more: dict[str, Any] = {"structured_outputs": StructuredOutputsParams(grammar=grammar)}
    except ValueError as error:
        raise bad_request(in_words_of("tools", str(error))) from None
    if any(marker in control for marker in style.format.markers):
        more["skip_special_tokens"] = False  # calls are read from the text; the grammar keeps other ones out of it
    return more


def explain_tools(use: ToolUse, form: StructuredOutputsParams, message: str) -> str:
    """What the grammar's compiler says, told of the function whose schema it is about."""
    found = _AT_LINE.search(message)
    place = function_at(form.grammar or "", int(found[1])) if found else None
    if found is None or place is None:
        return in_words_of("tools", message)
    return f"tools[{use.functions.index(use.callable[place])}].function.parameters: {found[2]}"

"""From a form to a grammar in llguidance's dialect of Lark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from octavo.structured_outputs import StructuredOutputsParams

_COMPACT = {"item_separator": ",", "key_separator": ":", "whitespace_flexible": False, "lenient": False}
# The model chooses how it spells what is forced: nothing is tokenized for it, so only bytes count.
_OPTIONS = '\n%llguidance {"no_forcing": true}\n'


def grammar_text(wanted: StructuredOutputsParams) -> str:
    """The whole grammar; equal texts are equal grammars. Not checked for what only its compiler knows."""
    return _rules(wanted) + _OPTIONS


def json_rule(schema: Mapping[str, Any]) -> str:
    """`%json {...}` for the right-hand side of a rule: JSON of this schema, without blanks."""
    return "%json " + json.dumps({**schema, "x-guidance": _COMPACT}, ensure_ascii=False, separators=(",", ":"))


def text_literal(text: str) -> str:
    """A text in quotes, for rules and terminals."""
    return json.dumps(text, ensure_ascii=False)


def _rules(wanted: StructuredOutputsParams) -> str:
    if wanted.grammar is not None:
        return wanted.grammar
    if wanted.choice is not None:
        return "start: CHOICE\nCHOICE: " + " | ".join(text_literal(text) for text in wanted.choice)
    if wanted.regex is not None:
        from llguidance import regex_to_lark

        return f"start: TEXT\nTEXT: /{regex_to_lark(wanted.regex, '')}/"
    schema = json.loads(wanted.json) if isinstance(wanted.json, str) else {"type": "object"}
    return "start: " + json_rule(schema)

"""Which format a model's calls have, told from its chat template."""

from __future__ import annotations

import re
from dataclasses import dataclass

from octavo.tools.formats import FORMATS, ToolFormat

AUTO = "auto"
FORMAT_NAMES = (AUTO, *FORMATS)
"""What a user may choose"""

_TAKES_TOOLS = re.compile(r"\btools\b")


@dataclass(frozen=True, slots=True)
class ToolStyle:
    """A format, and who tells the model of it."""

    format: ToolFormat
    native: bool
    """The chat template describes tools and writes calls and results itself; else a text of ours does"""
    reason: str
    """Why, in words"""


def choose_style(template: str | None, wanted: str = AUTO) -> ToolStyle:
    """`template`: the source that conversations with tools are rendered with; `wanted`: a name of FORMAT_NAMES.

    ValueError for an unknown name.
    """
    if wanted not in FORMAT_NAMES:
        raise ValueError(f"tool_format={wanted!r}: must be one of {', '.join(FORMAT_NAMES)}")
    found = _detect(template or "")
    if wanted == AUTO:
        return found
    if found.format.name == wanted and found.native:
        return ToolStyle(found.format, True, f"chosen by option, and {found.reason}")
    return ToolStyle(FORMATS[wanted], False, "chosen by option, and the chat template does not have it")


def _detect(template: str) -> ToolStyle:
    native = _TAKES_TOOLS.search(template) is not None
    name, sign = _known_format(template)
    if name is not None and native:
        return ToolStyle(FORMATS[name], True, f"the chat template takes tools and has {sign}")
    if name is not None:
        return ToolStyle(FORMATS[name], False, f"the chat template has {sign} but takes no tools")
    why = "the chat template's own calls are of no known format" if native else "the chat template takes no tools"
    if "<start_of_turn>" in template:
        return ToolStyle(FORMATS["gemma"], False, f"{why}, and has Gemma's <start_of_turn>")
    return ToolStyle(FORMATS["hermes"], False, f"{why}; hermes is the default")


def _known_format(template: str) -> tuple[str | None, str]:
    """(name, what tells it). Templates that write calls otherwise, as XML say, are none of these."""
    if "[TOOL_CALLS]" in template:
        return ("mistral-args", "[ARGS]") if "[ARGS]" in template else ("mistral", "[TOOL_CALLS]")
    if "<tool_call>" in template:
        return ("hermes", "<tool_call>") if _has_key(template, "arguments") else (None, "")
    if "<|start_header_id|>" in template and _has_key(template, "parameters"):
        return "llama3", '"parameters" between Llama 3\'s headers'
    return None, ""


def _has_key(template: str, name: str) -> bool:
    """Whether it writes this key of a JSON object, as such or inside a quoted string."""
    return re.search(rf'\\?"{name}\\?"', template) is not None

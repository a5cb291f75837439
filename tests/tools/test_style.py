"""Formats told from chat templates, short ones in the manner of the families'."""

from __future__ import annotations

import pytest

from octavo.tools.style import FORMAT_NAMES, choose_style

QWEN = """{% if tools %}<|im_start|>system
<tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}</tools>
{{- "<tool_call>\\n{\\"name\\": <name>, \\"arguments\\": <object>}\\n</tool_call>" }}{% endif %}"""
HERMES_PLAIN = """{% for m in messages %}<|im_start|>{{ m.role }}<tool_call>{"arguments": {}}{% endfor %}"""
XML = """{% for tool in tools %}<tool_call><function={{ tool.name }}><parameter=x></tool_call>{% endfor %}"""
LLAMA = """<|start_header_id|>user<|end_header_id|>{% if tools is not none %}
{{- 'Answer as {"name": the function, "parameters": its arguments}' }}{% endif %}"""
MISTRAL = """{% if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}[TOOL_CALLS]"""
MISTRAL_NEW = """{% if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}{% endif %}[TOOL_CALLS]{{ n }}[ARGS]{{ a }}"""
GEMMA = """{% for m in messages %}<start_of_turn>{{ m.role }}{{ m.content }}<end_of_turn>{% endfor %}"""
PLAIN = """{% for m in messages %}<|im_start|>{{ m.role }}{{ m.content }}<|im_end|>{% endfor %}"""


@pytest.mark.parametrize(
    ("template", "name", "native", "reason"),
    [
        (QWEN, "hermes", True, "has <tool_call>"),
        (HERMES_PLAIN, "hermes", False, "takes no tools"),
        (XML, "hermes", False, "no known format"),
        (LLAMA, "llama3", True, '"parameters"'),
        (MISTRAL, "mistral", True, "[TOOL_CALLS]"),
        (MISTRAL_NEW, "mistral-args", True, "[ARGS]"),
        (GEMMA, "gemma", False, "<start_of_turn>"),
        (PLAIN, "hermes", False, "takes no tools; hermes is the default"),
        (None, "hermes", False, "takes no tools"),
    ],
)
def test_the_format_is_told_from_the_template(template: str | None, name: str, native: bool, reason: str) -> None:
    style = choose_style(template)
    assert (style.format.name, style.native) == (name, native)
    assert reason in style.reason


def test_a_format_can_be_forced() -> None:
    forced = choose_style(QWEN, "llama3")
    assert (forced.format.name, forced.native) == ("llama3", False)
    assert "option" in forced.reason
    assert choose_style(QWEN, "hermes").native
    assert choose_style(PLAIN, "hermes").native is False


def test_an_unknown_format_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="tool_format='json'.*" + ", ".join(FORMAT_NAMES)):
        choose_style(QWEN, "json")

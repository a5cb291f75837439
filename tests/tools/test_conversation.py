"""Conversations with calls, for templates that take them and for those that do not."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.text.chat_template import ChatTemplate
from octavo.tools.conversation import prepare_conversation
from octavo.tools.style import choose_style

TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
ASK: dict[str, Any] = {"role": "user", "content": "1+2 and 3+4?"}
CALLS: dict[str, Any] = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": {"x": [1, 2]}}},
        {"id": "call_2", "type": "function", "function": {"name": "add", "arguments": {"x": [3, 4]}}},
    ],
}
RESULTS: list[dict[str, Any]] = [
    {"role": "tool", "content": "3", "tool_call_id": "call_1"},
    {"role": "tool", "content": "7", "tool_call_id": "call_2"},
]
TURNS = "{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}"


def rendered(template: str, messages: list[dict[str, Any]], tools: Any, wanted: str = "auto") -> str:
    prepared, given = prepare_conversation(messages, tools, choose_style(template, wanted))
    return ChatTemplate(template, {}).render(prepared, tools=given)


def test_a_template_without_tools_is_told_of_them_in_words() -> None:
    assert rendered(TURNS, [ASK, CALLS, *RESULTS, ASK], [TOOL]) == (
        "[system]You can call functions. Each line describes one of them, with a JSON schema of its arguments:\n"
        '{"name": "add", "parameters": {"type": "object", "properties": {}}}\n\n'
        "To call a function, write its name and its arguments in this way:\n"
        '<tool_call>\n{"name": "function_name", "arguments": {"argument_name": "value"}}\n</tool_call>\n\n'
        "The result comes in this way:\n<tool_response>\nresult\n</tool_response>\n\n"
        "Call a function where it helps to answer; else answer in words.\n"
        "[user]1+2 and 3+4?\n"
        '[assistant]<tool_call>\n{"name": "add", "arguments": {"x": [1, 2]}}\n</tool_call>\n'
        '<tool_call>\n{"name": "add", "arguments": {"x": [3, 4]}}\n</tool_call>\n'
        "[user]<tool_response>\n3\n</tool_response>\n<tool_response>\n7\n</tool_response>\n1+2 and 3+4?\n"
    )


def test_the_system_message_stays_in_front() -> None:
    text = rendered(TURNS, [{"role": "system", "content": "Be kind."}, ASK], [TOOL])
    assert text.startswith("[system]Be kind.\n\nYou can call functions.")
    assert text.count("[system]") == 1


@pytest.mark.parametrize(
    ("name", "call", "result"),
    [
        ("hermes", '<tool_call>\n{"name": "add", "arguments": {"x": [1, 2]}}\n</tool_call>', "<tool_response>\n3\n"),
        ("llama3", '[assistant]{"name": "add", "parameters": {"x": [1, 2]}}', "<tool_response>\n3\n"),
        ("mistral", '[TOOL_CALLS][{"name": "add", "arguments": {"x": [1, 2]}}, {"name"', "<tool_response>\n3\n"),
        ("mistral-args", '[TOOL_CALLS]add[ARGS]{"x": [1, 2]}[TOOL_CALLS]add[ARGS]', "<tool_response>\n3\n"),
        ("gemma", '```tool_code\n{"name": "add", "parameters": {"x": [1, 2]}}\n```', "```tool_output\n3\n```"),
    ],
)
def test_each_format_in_words(name: str, call: str, result: str) -> None:
    text = rendered(TURNS, [ASK, CALLS, *RESULTS], [TOOL], name)
    assert call in text and result in text


def test_conversations_without_tools_stay_as_they_are() -> None:
    messages = [ASK, ASK, {"role": "assistant", "content": "3"}]
    assert prepare_conversation(messages, None, choose_style(TURNS)) == (messages, None)
    assert prepare_conversation(messages, [], choose_style(TURNS)) == (messages, None)


def test_calls_of_the_past_are_text_also_without_tools() -> None:
    text = rendered(TURNS, [ASK, {**CALLS, "content": "Let me see."}, *RESULTS], None)
    assert "[assistant]Let me see.\n<tool_call>" in text and "[tool]" not in text and "[system]" not in text


def test_a_template_that_takes_tools_gets_them() -> None:
    template = (
        '{{ tools | tojson }}"<tool_call>" "arguments"{% for m in messages %}[{{ m.role }}]{{ m.content }}'
        "{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}{% endfor %}"
    )
    text = rendered(template, [ASK, CALLS, *RESULTS], [TOOL])
    assert text.startswith('[{"type": "function", "function": {"name": "add"')
    assert '{"name": "add", "arguments": {"x": [1, 2]}}' in text and "[tool]3[tool]7" in text


def test_ids_are_short_for_mistrals_templates_and_still_match() -> None:
    style = choose_style("{{ tools }}[TOOL_CALLS]")
    prepared, _ = prepare_conversation([ASK, CALLS, *RESULTS], [TOOL], style)
    made = [call["id"] for call in prepared[1]["tool_calls"]]
    assert [message["tool_call_id"] for message in prepared[2:]] == made
    assert all(len(name) == 9 and name.isalnum() for name in made) and len(set(made)) == 2
    again, _ = prepare_conversation(prepared, [TOOL], style)
    assert again == prepared
    assert CALLS["tool_calls"][0]["id"] == "call_1", "the caller's messages are not changed"


def test_equal_conversations_give_equal_prompts() -> None:
    assert rendered(TURNS, [ASK, CALLS, *RESULTS], [TOOL]) == rendered(TURNS, [ASK, CALLS, *RESULTS], [TOOL])

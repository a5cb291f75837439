"""Tools over HTTP, with a model that says what a test tells it to."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from support.running_server import Running
from support.tools import ADD, LOOK_UP, joined

from octavo.outputs import CompletionOutput
from octavo.server.tool_calls import CallReader
from octavo.server.tool_fields import ToolUse
from octavo.tools.formats import FORMATS

TOOLS = [ADD, LOOK_UP]
HERMES = FORMATS["hermes"]
ONE = HERMES.write([("add", {"x": 1, "y": 2})])
TWO = HERMES.write([("add", {"x": 1, "y": 2}), ("look_up", {"word": 'é "}'})])
NAMED = {"type": "function", "function": {"name": "add"}}
Make = Callable[..., Running]


def both(server: Running, **body: Any) -> dict[str, Any]:
    """The first choice, which is the same streamed but for ids."""
    body = {"messages": [{"role": "user", "content": "hi"}], "tools": TOOLS, **body}
    whole = server.post("/v1/chat/completions", body)
    assert whole.status_code == 200, whole.text
    for choice in whole.json()["choices"]:
        streamed = joined(server.events("/v1/chat/completions", **body), choice["index"])
        calls, others = (message.get("tool_calls", []) for message in (choice["message"], streamed["message"]))
        for call, other in zip(calls, others, strict=True):
            assert call["id"] != other["id"]
            other["id"] = call["id"]
        assert streamed["message"] == {name: choice["message"][name] for name in choice["message"] if name != "refusal"}
        assert streamed["finish_reason"] == choice["finish_reason"]
    return dict(whole.json()["choices"][0])


@pytest.mark.parametrize(
    ("choice", "answer", "names", "reason"),
    [
        (None, "Three.", [], "stop"),
        ("none", "Three.", [], "stop"),
        ("auto", "Three.", [], "stop"),
        ("auto", ONE, ["add"], "tool_calls"),
        ("auto", TWO, ["add", "look_up"], "tool_calls"),
        ("required", ONE, ["add"], "tool_calls"),
        ("required", TWO, ["add", "look_up"], "tool_calls"),
        (NAMED, ONE, ["add"], "stop"),
    ],
)
def test_calls_and_finish_reasons_are_openais(
    fake: Make, choice: Any, answer: str, names: list[str], reason: str
) -> None:
    given = both(fake(lambda request: answer), tool_choice=choice)
    assert given["finish_reason"] == reason
    calls = given["message"].get("tool_calls", [])
    assert [call["function"]["name"] for call in calls] == names
    assert given["message"]["content"] == (None if names else answer)
    assert all(call["type"] == "function" and call["id"].startswith("call_") for call in calls)
    assert len({call["id"] for call in calls}) == len(calls)
    for call in calls:
        assert json.loads(call["function"]["arguments"]) in ({"x": 1, "y": 2}, {"word": 'é "}'})


def test_text_before_a_call_stays_content(fake: Make) -> None:
    given = both(fake(lambda request: "Let me <see>.\n" + ONE))
    assert given["message"]["content"] == "Let me <see>.\n"
    assert len(given["message"]["tool_calls"]) == 1 and given["finish_reason"] == "tool_calls"


def test_stream_has_name_and_id_first_then_arguments(fake: Make) -> None:
    events = fake(lambda request: TWO).events(
        "/v1/chat/completions", messages=[{"role": "user", "content": "hi"}], tools=TOOLS,
        stream_options={"include_usage": True},
    )  # fmt: skip
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": None}
    assert events[-1]["choices"] == [] and events[-1]["usage"]["completion_tokens"] == len(TWO.encode()) + 1
    deltas = [call for event in events[:-1] for call in event["choices"][0]["delta"].get("tool_calls", [])]
    first = [delta for delta in deltas if "id" in delta]
    assert [delta["index"] for delta in first] == [0, 1]
    assert [delta["function"]["name"] for delta in first] == ["add", "look_up"]
    assert all(set(delta) == {"index", "function"} for delta in deltas if delta not in first)
    assert [delta["index"] for delta in deltas] == sorted(delta["index"] for delta in deltas)
    assert len({event["id"] for event in events}) == 1


@pytest.mark.parametrize("place", range(1, len(TWO.encode()), 3))
def test_a_cut_answer_says_length_and_leaks_nothing(fake: Make, place: int) -> None:
    given = both(fake(lambda request: TWO), max_tokens=place, tool_choice="required")
    assert given["finish_reason"] == "length"
    assert not given["message"]["content"]
    wholes = ['{"x": 1, "y": 2}', '{"word": "é \\"}"}']
    for call, whole in zip(given["message"].get("tool_calls", []), wholes, strict=False):
        assert whole.startswith(call["function"]["arguments"].rstrip("\ufffd"))


def test_n_choices_have_their_own_calls(fake: Make) -> None:
    server = fake(lambda request: TWO)
    both(server, n=3)
    choices = server.chat(tools=TOOLS, n=3).json()["choices"]
    ids = [call["id"] for choice in choices for call in choice["message"]["tool_calls"]]
    assert len(set(ids)) == 6


def test_logprobs_are_of_all_tokens_calls_too(fake: Make) -> None:
    server = fake(lambda request: ONE)
    whole = server.chat(tools=TOOLS, logprobs=True).json()["choices"][0]
    assert len(whole["logprobs"]["content"]) == len(ONE) + 1
    body = {"messages": [{"role": "user", "content": "hi"}], "tools": TOOLS, "logprobs": True}
    events = server.events("/v1/chat/completions", **body)
    parts = [event["choices"][0]["logprobs"] for event in events if event["choices"]]
    assert [entry for part in parts if part for entry in part["content"]] == whole["logprobs"]["content"]


def test_a_stop_string_cuts_calls_as_text(fake: Make) -> None:
    given = both(fake(lambda request: "Well. " + ONE), stop=["2}"])
    assert (given["finish_reason"], given["stop_reason"]) == ("stop", "2}")
    assert given["message"]["tool_calls"][0]["function"]["arguments"] == '{"x": 1, "y": '
    assert both(fake(lambda request: "Well. " + ONE), stop=["."])["message"] == {
        "role": "assistant", "content": "Well", "refusal": None
    }  # fmt: skip


def test_a_space_that_the_tokenizer_begins_a_text_with_is_not_content() -> None:
    use = ToolUse((), (), "auto", None)
    ended = CompletionOutput(0, " Yes. <", [], None, None, finish_reason="stop")
    assert CallReader(HERMES, use, True).message(ended)["content"] == "Yes. <"
    assert CallReader(HERMES, use, False).message(ended)["content"] == " Yes. <"
    reader, going = CallReader(HERMES, use, True), CompletionOutput(0, " ", [], None, None)
    assert reader.deltas("", going) == reader.deltas(" ", going) == []
    assert reader.deltas(" x", going) == [{"content": " x"}]


def test_an_answer_of_no_format_is_an_error(fake: Make) -> None:
    server = fake(lambda request: "<tool_call>oh")
    answer = server.chat(tools=TOOLS)
    assert answer.status_code == 500 and "not its format" in answer.json()["error"]["message"]
    events = server.events("/v1/chat/completions", messages=[{"role": "user", "content": "hi"}], tools=TOOLS)
    assert "error" in events[-1]


def test_without_calls_the_model_hears_of_no_tools(fake: Make) -> None:
    seen: list[str] = []

    def answer(request: Any) -> str:
        seen.append(bytes(request.prompt_token_ids).decode())
        return "<tool_call> is text here"

    server = fake(answer)
    assert both(server, tool_choice="none")["message"]["content"] == "<tool_call> is text here"
    assert all("look_up" not in prompt for prompt in seen)
    server.chat(tools=TOOLS, max_tokens=1)
    assert '"name": "look_up"' in seen[-1]
    tokens = server.post("/tokenize", {"messages": [{"role": "user", "content": "hi"}], "tools": TOOLS}).json()
    assert bytes(tokens["tokens"]).decode() == seen[-1]


def test_calls_and_results_of_earlier_turns_are_in_the_prompt(fake: Make) -> None:
    server = fake(lambda request: bytes(request.prompt_token_ids).decode().partition("user: ")[2])
    call = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"x": 1}'}}
    messages = [
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "2"}]},
    ]
    answer = server.post("/v1/chat/completions", {"messages": messages, "tools": TOOLS, "tool_choice": "none"}).json()
    assert answer["choices"][0]["message"]["content"] == (
        "1+1?\n"
        'assistant: <tool_call>\n{"name": "add", "arguments": {"x": 1}}\n</tool_call>\n'
        "user: <tool_response>\n2\n</tool_response>\nassistant: "
    )


def tool(**function: Any) -> dict[str, Any]:
    return {"type": "function", "function": function}


def deep(levels: int) -> dict[str, Any]:
    return {"properties": {"x": deep(levels - 1)}} if levels else {}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"tools": {}}, "tools"),
        ({"tools": [ADD] * 129}, "tools"),
        ({"tools": [5]}, "tools[0]"),
        ({"tools": [{"type": "function"}]}, "tools[0]"),
        ({"tools": [{"function": {"name": "f"}}]}, "tools[0]"),
        ({"tools": [{"type": "custom", "custom": {"name": "f"}}]}, "tools[0].type"),
        ({"tools": [ADD, tool(name="")]}, "tools[1].function.name"),
        ({"tools": [tool(name="a b")]}, "tools[0].function.name"),
        ({"tools": [tool(name="x" * 65)]}, "tools[0].function.name"),
        ({"tools": [tool(name="ok\n")]}, "tools[0].function.name"),
        ({"tools": [tool(name=5)]}, "tools[0].function.name"),
        ({"tools": [tool()]}, "tools[0].function.name"),
        ({"tools": [LOOK_UP, ADD, ADD]}, "tools[2].function.name"),
        ({"tools": [tool(name="f", description=5)]}, "tools[0].function.description"),
        ({"tools": [tool(name="f", strict="yes")]}, "tools[0].function.strict"),
        ({"tools": [tool(name="f", parameters=[])]}, "tools[0].function.parameters"),
        ({"tools": [tool(name="f", parameters={"type": "array"})]}, "tools[0].function.parameters.type"),
        ({"tools": [tool(name="f", parameters={"x-guidance": {}})]}, "tools[0].function.parameters"),
        ({"tools": [tool(name="f", parameters=deep(40))]}, "tools[0].function.parameters"),
        ({"tools": [tool(name="f", parameters={"propertees": {}})]}, "tools[0].function.parameters"),
        (
            {"tools": [ADD, tool(name="f", parameters={"properties": {"x": {"type": "text"}}})]},
            "tools[1].function.parameters",
        ),
        (
            {"tools": [ADD, tool(name="f", parameters={"properties": {"x": {"not": {}}}})]},
            "tools[1].function.parameters",
        ),
        (
            {"tools": [tool(name="f", parameters={"properties": {"x": {"pattern": "(?=a)"}}})]},
            "tools[0].function.parameters",
        ),
        ({"tools": [tool(name="f", parameters={"enum": ["x" * 150_000]})]}, "tools"),
        ({"tools": [ADD], "guided_regex": "a"}, "guided_regex"),
        ({"tools": [ADD], "structured_outputs": {"regex": "a"}}, "structured_outputs"),
        ({"tools": [ADD], "response_format": {"type": "yaml"}}, "response_format.type"),
        ({"tool_choice": "required"}, "tools"),
        ({"tool_choice": NAMED}, "tools"),
        ({"tools": [], "tool_choice": "required"}, "tools"),
        ({"tools": [ADD], "tool_choice": "always"}, "tool_choice"),
        ({"tools": [ADD], "tool_choice": 5}, "tool_choice"),
        ({"tools": [ADD], "tool_choice": {"type": "function"}}, "tool_choice"),
        ({"tools": [ADD], "tool_choice": {"type": "allowed_tools"}}, "tool_choice.type"),
        ({"tools": [ADD], "tool_choice": tool(name="sub")}, "tool_choice.function.name"),
        ({"parallel_tool_calls": True}, "parallel_tool_calls"),
        ({"tools": [ADD], "parallel_tool_calls": 1}, "parallel_tool_calls"),
        ({"tools": [ADD], "include_stop_str_in_output": True}, "include_stop_str_in_output"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"function_call": "auto"}, "function_call"),
    ],
    ids=lambda value: repr(value)[:50],
)
def test_bad_tools_are_named(fake: Make, body: dict[str, Any], param: str) -> None:
    answer = fake().chat("hi", **body)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert (error["param"] or "").startswith(param) and param in error["message"]


def test_what_asks_for_nothing_is_taken(small: Running) -> None:
    for body in ({"tools": []}, {"tool_choice": "none"}, {"tool_choice": "auto"}, {"tools": None, "tool_choice": None}):
        assert small.chat("hi", max_tokens=1, **body).status_code == 200


def test_unknown_fields_of_tools_are_told(fake: Make) -> None:
    extra = {**ADD, "more": 1, "function": {**ADD["function"], "returns": {}}}
    answer = fake(lambda request: "x").chat(tools=[extra])
    assert answer.headers["X-Octavo-Ignored"] == "tools[0].more, tools[0].function.returns"


def test_the_format_can_be_chosen_and_is_logged(fake: Make, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "octavo.server")
    gemma = FORMATS["gemma"]
    server = fake(lambda request: gemma.write([("add", {"x": 1, "y": 2})]), tool_format="gemma")
    assert both(server)["message"]["tool_calls"][0]["function"]["name"] == "add"
    (line,) = [json.loads(record.message) for record in caplog.records if '"event":"tools"' in record.message]
    assert (line["format"], line["native"]) == ("gemma", False) and "chosen by option" in line["reason"]

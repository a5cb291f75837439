"""A model that writes at random: what it calls still is what the tools' schemas say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.running_server import Running, running
from support.tools import SIGNS, joined, make_tool_model

from octavo import AsyncLLM
from octavo.tools.formats import FORMATS

FLAGS: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "set_flags",
        "parameters": {
            "type": "object",
            "properties": {
                "on": {"type": "boolean"},
                "level": {"enum": [1, 2, "most"]},
                "note": {"type": "string", "maxLength": 4},
            },
            "required": ["on", "level"],
        },
    },
}
NOW: dict[str, Any] = {"type": "function", "function": {"name": "now"}}
ASK: dict[str, Any] = {
    "messages": [{"role": "user", "content": "hi"}],
    "tools": [FLAGS, NOW],
    "max_tokens": 200,
    "n": 6,
}


@pytest.fixture(scope="module", params=sorted(SIGNS))
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    model = make_tool_model(tmp_path_factory.mktemp("model"), FORMATS[request.param])
    llm = AsyncLLM(str(model), dtype="float32", threads=1, kv_cache_memory="4MiB", block_size=16)
    with running(llm) as server:
        style = server.server._context.reader.tool_style
        assert (style.format.name, style.native) == (request.param, True)
        yield server


def check(choice: dict[str, Any]) -> int:
    """Number of its calls, which are right; the last one of an answer that was cut may be incomplete."""
    message = choice["message"]
    calls = message.get("tool_calls", [])
    for call in calls[:-1] if choice["finish_reason"] == "length" else calls:
        arguments = json.loads(call["function"]["arguments"])
        if call["function"]["name"] == "now":
            assert arguments == {}
            continue
        assert call["function"]["name"] == "set_flags"
        assert type(arguments.pop("on")) is bool and arguments.pop("level") in (1, 2, "most")
        assert len(arguments.pop("note", "")) <= 4 and arguments == {}
    for sign in ("TOOL_CALLS", "tool_call", "python_tag", "</s>"):
        assert sign not in (message["content"] or "")
    return len(calls)


def choices(server: Running, **more: Any) -> list[dict[str, Any]]:
    answer = server.post("/v1/chat/completions", {**ASK, **more})
    assert answer.status_code == 200, answer.text
    return list(answer.json()["choices"])


def test_required(server: Running) -> None:
    several = ended = 0
    for choice in choices(server, tool_choice="required", seed=1):
        assert choice["finish_reason"] in ("tool_calls", "length") and choice["message"]["content"] is None
        several += check(choice) > 1
        ended += choice["finish_reason"] == "tool_calls"
    assert ended
    assert several or server.server._context.reader.tool_style.format.between_calls is None


def test_beams_and_the_best_of_several(server: Running) -> None:
    body = {"n": 2, "tool_choice": "required", "parallel_tool_calls": False}
    beams = {**body, "use_beam_search": True}
    given = choices(server, **beams)
    assert [check(choice) for choice in given] == [1, 1]
    events = server.events("/v1/chat/completions", **{**ASK, **beams})
    for choice in given:
        (call,) = joined(events, choice["index"])["message"]["tool_calls"]
        assert call["function"] == choice["message"]["tool_calls"][0]["function"]
    assert [check(choice) for choice in choices(server, **body, best_of=4, seed=9)] == [1, 1]


def test_one_call_and_named(server: Running) -> None:
    for choice in choices(server, tool_choice="required", parallel_tool_calls=False, seed=2):
        assert check(choice) == 1
    for choice in choices(server, tool_choice={"type": "function", "function": {"name": "now"}}, seed=3):
        assert choice["finish_reason"] == "stop"
        assert [call["function"] for call in choice["message"]["tool_calls"]] == [{"name": "now", "arguments": "{}"}]


def test_auto(server: Running) -> None:
    """The marker is one token in a hundred, so a random text comes to it."""
    given = choices(server, seed=4)
    with_calls = [choice for choice in given if check(choice)]
    assert with_calls and any(choice["message"]["content"] for choice in with_calls)
    assert all(choice["finish_reason"] in ("tool_calls", "length") for choice in with_calls)
    assert all(choice["finish_reason"] in ("stop", "length") for choice in given if choice not in with_calls)


def test_a_stream_joins_to_the_whole_and_the_cache_changes_nothing(server: Running) -> None:
    body = {**ASK, "seed": 5, "n": 4}
    whole = choices(server, seed=5, n=4)
    events = server.events("/v1/chat/completions", **body)
    for choice in whole:
        other = joined(events, choice["index"])
        assert other["finish_reason"] == choice["finish_reason"]
        assert other["message"]["content"] == choice["message"]["content"]
        names = [[call["function"] for call in each["message"].get("tool_calls", [])] for each in (choice, other)]
        assert names[0] == names[1]
    server.assert_well()


def test_any_cut_is_a_beginning(server: Running) -> None:
    whole = choices(server, tool_choice="required", seed=6, n=1)[0]["message"]["tool_calls"]
    for length in range(1, 40, 3):
        (choice,) = choices(server, tool_choice="required", seed=6, n=1, max_tokens=length)
        calls = choice["message"].get("tool_calls", [])
        assert choice["finish_reason"] in ("length", "tool_calls") and not choice["message"]["content"]
        for call, expected in zip(calls, whole, strict=False):
            assert call["function"]["name"] == expected["function"]["name"]
            assert expected["function"]["arguments"].startswith(call["function"]["arguments"])


def test_text_may_be_held_to_a_response_format(server: Running) -> None:
    schema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}},
        "required": ["ok"],
        "additionalProperties": False,
    }
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    if server.server._context.reader.tool_style.format.starts_bare:
        answer = server.post("/v1/chat/completions", {**ASK, "response_format": wanted})
        assert answer.status_code == 400 and answer.json()["error"]["param"] == "response_format"
        return
    kinds = set()
    for choice in choices(server, response_format=wanted, seed=7):
        if not check(choice):
            assert set(json.loads(choice["message"]["content"])) == {"ok"}
        kinds.add(choice["finish_reason"])
    assert "stop" in kinds
    forced = choices(server, response_format=wanted, tool_choice="required", seed=8, n=1)
    assert check(forced[0])

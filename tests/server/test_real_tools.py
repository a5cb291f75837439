"""The official client and a real server process with a real model: calls always parse and hold to their schemas."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest
from support.tools import ADD, LOOK_UP

from octavo.loaders.aliases import ALIASES
from octavo.loaders.hub import octavo_home

TOOLS: list[Any] = [ADD, LOOK_UP]
ASK: list[Any] = [{"role": "user", "content": "What is 17 plus 25? Use the function add."}]
EARLIER: list[Any] = []
for number, word in enumerate(("happy", "calm", "quick")):
    call = {"name": "look_up", "arguments": json.dumps({"word": word})}
    EARLIER += [
        {"role": "user", "content": f"What does {word} mean?"},
        {"role": "assistant", "tool_calls": [{"id": f"call_{number}", "type": "function", "function": call}]},
        {"role": "tool", "tool_call_id": f"call_{number}", "content": "A word."},
        {"role": "assistant", "content": f"{word} is a word."},
    ]
NAMED: Any = {"type": "function", "function": {"name": "look_up"}}


@contextmanager
def serving(name: str, *options: str) -> Iterator[tuple[openai.OpenAI, dict[str, Any]]]:
    """A client of a new process, and what the process said about tools."""
    path = octavo_home() / "models" / ALIASES[name].filename
    if not path.exists():
        pytest.skip(f"{path} is not there")
    command = [
        sys.executable,
        "-m",
        "octavo",
        "serve",
        str(path),
        "--port",
        "0",
        "--kv-cache-memory",
        "64MiB",
        *options,
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            events: dict[str, Any] = {}
            while "listening" not in events:
                line = process.stderr.readline()
                assert line, "the server has ended"
                if line.startswith("{"):
                    events[json.loads(line)["event"]] = json.loads(line)
            address = events["listening"]["addresses"][0]
            with openai.OpenAI(base_url=f"http://{address}/v1", api_key="x", max_retries=0) as client:
                yield client, events["tools"]
        finally:
            process.kill()


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[openai.OpenAI, dict[str, Any]]]:
    with serving("smollm2") as made:
        yield made


@pytest.fixture
def client(served: tuple[openai.OpenAI, dict[str, Any]]) -> openai.OpenAI:
    return served[0]


def create(client: openai.OpenAI, messages: list[Any] = ASK, **more: Any) -> Any:
    more = {"model": client.models.list().data[0].id, "tools": TOOLS, "max_tokens": 120, "seed": 1, **more}
    return client.chat.completions.create(messages=messages, **more)


def ask_for(word: str) -> list[Any]:
    return [{"role": "user", "content": f"What does {word} mean?"}]


def check(call: Any) -> None:
    """Name and arguments are as the schema says."""
    arguments = json.loads(call.function.arguments)
    if call.function.name == "add":
        assert set(arguments) == {"x", "y"} and all(type(value) is int for value in arguments.values())
    else:
        assert call.function.name == "look_up" and set(arguments) == {"word"}
        assert isinstance(arguments["word"], str)


@pytest.mark.real_model
def test_the_server_says_which_format_it_chose(served: tuple[openai.OpenAI, dict[str, Any]]) -> None:
    assert (served[1]["format"], served[1]["native"]) == ("hermes", False)
    assert "takes no tools" in served[1]["reason"]


@pytest.mark.real_model
@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_required_calls_hold_to_their_schemas(client: openai.OpenAI, temperature: float) -> None:
    answer = create(client, tool_choice="required", temperature=temperature, n=4, parallel_tool_calls=False)
    for choice in answer.choices:
        assert choice.message.content is None or choice.finish_reason == "length"
        if choice.finish_reason == "length":
            continue
        assert choice.finish_reason == "tool_calls"
        (call,) = choice.message.tool_calls
        check(call)
    assert sum(choice.finish_reason == "tool_calls" for choice in answer.choices) >= 2


@pytest.mark.real_model
def test_a_named_function_is_called(client: openai.OpenAI) -> None:
    choice = create(client, tool_choice=NAMED, temperature=0).choices[0]
    assert choice.finish_reason == "stop"
    (call,) = choice.message.tool_calls
    assert call.function.name == "look_up"
    check(call)


@pytest.mark.real_model
def test_auto_gives_text_or_whole_calls(client: openai.OpenAI) -> None:
    """A model of this size calls by itself where it has seen itself do so."""
    calls = 0
    for word in ("serene", "brisk"):
        for choice in create(client, EARLIER + ask_for(word), temperature=0.7, n=3).choices:
            assert "<tool_call>" not in (choice.message.content or "")
            assert (choice.finish_reason == "tool_calls") == bool(choice.message.tool_calls)
            for call in choice.message.tool_calls or []:
                calls += 1
                check(call)
    assert calls
    assert create(client, temperature=0).choices[0].message.content, "and else it answers in words"


@pytest.mark.real_model
def test_none_gives_text(client: openai.OpenAI) -> None:
    choice = create(client, tool_choice="none", temperature=0, max_tokens=8).choices[0]
    assert choice.message.tool_calls is None and choice.message.content


@pytest.mark.real_model
def test_a_stream_joins_to_the_whole(client: openai.OpenAI) -> None:
    whole = create(client, tool_choice="required", temperature=0)
    calls: list[dict[str, str]] = []
    reasons = []
    for chunk in create(client, tool_choice="required", temperature=0, stream=True):
        choice = chunk.choices[0]
        assert not choice.delta.content
        for part in choice.delta.tool_calls or []:
            if part.id is not None:
                assert part.index == len(calls)
                calls.append({"id": part.id, "name": part.function.name, "arguments": ""})
            calls[part.index]["arguments"] += part.function.arguments
        reasons += [choice.finish_reason] if choice.finish_reason else []
    expected = [(call.function.name, call.function.arguments) for call in whole.choices[0].message.tool_calls]
    assert [(call["name"], call["arguments"]) for call in calls] == expected
    assert reasons == [whole.choices[0].finish_reason]
    assert len({call["id"] for call in calls}) == len(calls)


@pytest.mark.real_model
def test_results_come_back_and_the_prefix_is_cached(client: openai.OpenAI) -> None:
    first = create(client, tool_choice="required", temperature=0, parallel_tool_calls=False)
    message = first.choices[0].message
    (call,) = message.tool_calls
    turn = [
        *ASK,
        message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "42"},
    ]
    second = create(client, turn, temperature=0, max_tokens=24)
    assert second.usage.prompt_tokens > first.usage.prompt_tokens
    assert second.usage.prompt_tokens_details.cached_tokens >= first.usage.prompt_tokens // 2
    assert second.choices[0].message.content or second.choices[0].message.tool_calls


@pytest.mark.real_model
@pytest.mark.parametrize("name", ["gemma", "mistral", "mistral-args", "llama3"])
def test_every_format_can_be_chosen(name: str) -> None:
    with serving("smollm2", "--tool-format", name) as (client, said):
        assert (said["format"], said["native"]) == (name, False)
        message = create(client, tool_choice="required", temperature=0).choices[0].message
        assert message.content is None
        (call,) = message.tool_calls
        check(call)

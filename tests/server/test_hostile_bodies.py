"""Wrong values in every field of every route, nested and huge ones too: refused or answered, and the next is right."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.running_server import Running

from octavo.server.body import MAX_DEPTH
from octavo.server.fields import ChatFields, CompletionFields, DetokenizeFields, Fields, TokenizeFields

ROUTES: dict[str, tuple[type[Fields], dict[str, Any]]] = {
    "/v1/completions": (CompletionFields, {"prompt": "a", "max_tokens": 1}),
    "/v1/chat/completions": (ChatFields, {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}),
    "/tokenize": (TokenizeFields, {"prompt": "a"}),
    "/detokenize": (DetokenizeFields, {"tokens": [5]}),
}
WRONG: list[Any] = [True, -1, 1.5, 2**70, "", "x" * 1000, [], [[[]]], {}, {"a": [{}]}, [{"type": "x", "name": 5}]]
MESSAGE_FIELDS = ("role", "content", "name", "tool_calls", "tool_call_id")
JSON_TYPE = {"content-type": "application/json"}


@pytest.fixture(autouse=True)
def well_afterwards(small: Running) -> Iterator[None]:
    """All blocks are free or cached, and the next request is right."""
    yield
    small.assert_well()


def check(server: Running, path: str, content: bytes) -> int:
    """Posts; the status, which must be an answer's or a refusal's before the client gives up."""
    answer = server.client.post(path, content=content, headers=JSON_TYPE)
    assert answer.status_code in (200, 400, 404, 413), f"{content[:200]!r}: {answer.text[:500]}"
    if answer.status_code >= 400:
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
        assert len(answer.json()["error"]["message"]) < 2000
    return answer.status_code


@pytest.mark.parametrize("path", ROUTES)
def test_wrong_values_in_every_field(small: Running, path: str) -> None:
    fields, good = ROUTES[path]
    refused = 0
    for name in fields.model_fields:
        for value in WRONG:
            body = {key: entry for key, entry in good.items() if key != name} | {name: value}
            refused += check(small, path, json.dumps(body).encode()) != 200
    assert refused > 5 * len(fields.model_fields)


def test_wrong_values_in_every_part_of_a_message(small: Running) -> None:
    for name in MESSAGE_FIELDS:
        for value in WRONG:
            message = {"role": "assistant", "content": "a"} | {name: value}
            body = {"messages": [message], "max_tokens": 1}
            check(small, "/v1/chat/completions", json.dumps(body).encode())
    for inside in WRONG:
        for call in (
            {"function": inside},
            {"function": {"name": inside}},
            {"function": {"name": "f", "arguments": inside}},
        ):
            message = {"role": "assistant", "tool_calls": [call]}
            check(small, "/v1/chat/completions", json.dumps({"messages": [message], "max_tokens": 1}).encode())


@pytest.mark.parametrize("depth", [MAX_DEPTH - 3, MAX_DEPTH + 1, 900, 100_000])
@pytest.mark.parametrize("path", ROUTES)
def test_deep_values_in_every_field(small: Running, path: str, depth: int) -> None:
    fields, good = ROUTES[path]
    names = [*fields.model_fields, "tools", "response_format", "unknown"] if depth < 1000 else ["unknown"]
    for name in names:
        start = json.dumps({key: entry for key, entry in good.items() if key != name})[:-1]
        for opening, closing in (("[", "]"), ('{"a":', "}")):
            value = opening * depth + "1" + closing * depth
            status = check(small, path, f'{start}, "{name}": {value}}}'.encode())
            assert status == 400 or (depth <= MAX_DEPTH and name not in fields.model_fields)


@pytest.mark.parametrize("depth", [60, 500, 100_000])
def test_deep_arguments_of_earlier_calls(small: Running, depth: int) -> None:
    for text in ("[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth):
        call = {"function": {"name": "f", "arguments": text}}
        message = {"role": "assistant", "tool_calls": [call]}
        body = {"messages": [message], "max_tokens": 1}
        assert check(small, "/v1/chat/completions", json.dumps(body).encode()) in (200, 400)


@pytest.mark.parametrize("path", ROUTES)
def test_huge_values_in_every_field(small: Running, path: str) -> None:
    """Near the size limit: each is refused in time, and none is repeated in the answer."""
    fields, good = ROUTES[path]
    many = ",".join
    huge = {
        "text": '"' + "x" * 1_000_000 + '"',
        "numbers": "[" + "7," * 200_000 + "7]",
        "texts": "[" + many(['"x"'] * 100_000) + "]",
        "objects": "[" + many(["{}"] * 100_000) + "]",
        "names": "{" + many(f'"{place}":1' for place in range(50_000)) + "}",
        "digits": "9" * 4000,
        "more digits": "9" * 500_000,
        "fraction": "0." + "1" * 500_000,
    }
    names = ("prompt", "messages", "tokens", "logit_bias", "stop", "stop_token_ids", "unknown", "seed", "model")
    for name in (name for name in names if name in fields.model_fields or name == "unknown"):
        start = json.dumps({key: entry for key, entry in good.items() if key != name})[:-1]
        for kind, value in huge.items():
            status = check(small, path, f'{start}, "{name}": {value}}}'.encode())
            allowed = name == "unknown" or name == "model" or (path == "/detokenize" and kind == "numbers")
            assert status == 400 or allowed, (name, kind)


@pytest.mark.parametrize(
    "body",
    [
        '{"prompt": "a", "prompt": "b"}',
        '{"prompt": "a", "max_tokens": 1, "max_tokens": 1}',
        '{"prompt": "a", "logit_bias": {"5": 1, "5": 2}}',
        '{"prompt": "a", "x": 1e99999}',
        '{"prompt": "a", "x": -Infinity}',
        '{"prompt": "a" "x": 1}',
        '{"prompt": "a",}',
        "{'prompt': 'a'}",
        '{"prompt": "a\n"}',
        '{"prompt": "a"}{"prompt": "b"}',
        '\ufeff{"prompt": "a"}',
        '{"prompt": "a"}\x00',
        "{} " * 3,
        "true",
        "1",
    ],
)
def test_what_is_almost_json_is_refused(small: Running, body: str) -> None:
    assert check(small, "/v1/completions", body.encode()) == 400


def test_one_surrogate_among_many_texts_is_found(small: Running) -> None:
    texts = ",".join(['"x"'] * 100_000)
    assert check(small, "/v1/completions", f'{{"prompt": "a", "unknown": [{texts}, "\\ud800"]}}'.encode()) == 400
    assert check(small, "/tokenize", f'{{"prompt": "\\ud83d\\ude00", "unknown": [{texts}]}}'.encode()) == 200


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "latin-1"])
def test_other_encodings_are_refused(small: Running, encoding: str) -> None:
    assert check(small, "/v1/completions", '{"prompt": "é"}'.encode(encoding)) == 400

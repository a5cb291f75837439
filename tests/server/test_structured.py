"""The form of answers over HTTP."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from small_model import make_small_model
from support.running_server import Running, running

from octavo import AsyncLLM

ARRAY = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 9}, "minItems": 2, "maxItems": 4}
FORMS: list[tuple[dict[str, Any], Callable[[str], bool]]] = [
    ({"guided_json": ARRAY}, lambda text: 2 <= len(json.loads(text)) <= 4),
    ({"guided_json": json.dumps(ARRAY)}, lambda text: 2 <= len(json.loads(text)) <= 4),
    ({"guided_regex": "[ab]{3}-[0-9]"}, lambda text: text[3] == "-" and len(text) == 5),
    ({"guided_choice": ["one", "two"]}, lambda text: text in ("one", "two")),
    ({"guided_grammar": 'start: "x" "y"? "z"'}, lambda text: text in ("xz", "xyz")),
    ({"structured_outputs": {"json": ARRAY}}, lambda text: 2 <= len(json.loads(text)) <= 4),
    ({"structured_outputs": {"choice": ["one"], "disable_any_whitespace": True}}, lambda text: text == "one"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": ARRAY, "strict": True}}},
     lambda text: 2 <= len(json.loads(text)) <= 4),
    ({"response_format": {"type": "text"}, "guided_json_object": False, "guided_decoding_backend": "auto"},
     lambda text: True),
]  # fmt: skip
WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"guided_json": ARRAY, "guided_regex": "a"}, "guided_regex", "guided_json and guided_regex: must not be"),
    ({"guided_choice": ["a"], "response_format": {"type": "json_object"}}, "response_format", "guided_choice and resp"),
    ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs", "regex and choice"),
    ({"structured_outputs": {}}, "structured_outputs", "has none"),
    ({"structured_outputs": []}, "structured_outputs", "must be an object"),
    ({"structured_outputs": {"whitespace_pattern": " "}}, "structured_outputs.whitespace_pattern", "not supported"),
    ({"guided_whitespace_pattern": " "}, "guided_whitespace_pattern", "not supported"),
    ({"guided_decoding_backend": "xgrammar"}, "guided_decoding_backend", "not supported"),
    ({"guided_json": {"type": "strin"}}, "guided_json", "Invalid type: strin"),
    ({"guided_json": {"type": "array", "uniqueItems": True}}, "guided_json", "uniqueItems"),
    ({"guided_json": {"minLenght": 3}}, "guided_json", "minLenght"),
    ({"guided_json": "{"}, "guided_json", "is not JSON"),
    ({"guided_json": 7}, "guided_json", "must be"),
    ({"guided_regex": "(a"}, "guided_regex", "unclosed group"),
    ({"guided_regex": 7}, "guided_regex", "string"),
    ({"guided_choice": []}, "guided_choice", "1 to 4096"),
    ({"guided_choice": "ab"}, "guided_choice", "list"),
    ({"guided_grammar": "start: x"}, "guided_grammar", "unknown name"),
    ({"guided_json_object": 1}, "guided_json_object", "bool"),
    ({"response_format": "json"}, "response_format", "must be an object"),
    ({"response_format": {"type": "xml"}}, "response_format.type", "one of text, json_object, json_schema"),
    ({"response_format": {"type": ["text"]}}, "response_format.type", "one of text, json_object, json_schema"),
    ({"response_format": {"type": "text", "json_schema": {}}}, "response_format.json_schema", "goes with"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "must be an object"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}},
     "response_format.json_schema.schema", "must be an object"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": 3, "schema": {}}}},
     "response_format.json_schema.name", "must be text"),
    ({"response_format": {"type": "json_schema", "json_schema": {"strict": "yes", "schema": {}}}},
     "response_format.json_schema.strict", "true or false"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"not": {}}}}},
     "response_format.json_schema.schema", "not"),
]  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    model = make_small_model(tmp_path_factory.mktemp("small"), has_bytes=True)
    llm = AsyncLLM(str(model), dtype="float32", kv_cache_memory="256KiB", block_size=8, executor="reference")
    with running(llm) as made:
        yield made


@pytest.mark.parametrize(("form", "is_right"), FORMS, ids=lambda value: str(value)[:40])
@pytest.mark.parametrize("route", ["chat", "completions"])
def test_answers_have_the_form_streamed_and_not(
    server: Running, route: str, form: dict[str, Any], is_right: Callable[[str], bool]
) -> None:
    path = "/v1/chat/completions" if route == "chat" else "/v1/completions"
    prompt = {"messages": [{"role": "user", "content": "hi"}]} if route == "chat" else {"prompt": "hi"}
    body = {**prompt, **form, "max_tokens": 20, "seed": 3, "n": 2}
    answer = server.post(path, body)
    assert answer.status_code == 200, answer.text
    choices = answer.json()["choices"]
    texts = [choice["message"]["content"] if route == "chat" else choice["text"] for choice in choices]
    assert all(map(is_right, texts))
    if form.get("response_format") != {"type": "text"}:
        assert [choice["finish_reason"] for choice in choices] == ["stop", "stop"]
    streamed = {0: "", 1: ""}
    for chunk in server.events(path, **body):
        for choice in chunk["choices"]:
            new = choice["delta"].get("content", "") if route == "chat" else choice["text"]
            streamed[choice["index"]] += new
    assert list(streamed.values()) == texts


@pytest.mark.parametrize(("form", "param", "message"), WRONG, ids=lambda value: str(value)[:40])
@pytest.mark.parametrize("stream", [False, True])
def test_a_wrong_form_is_a_400_that_names_the_field_that_was_sent(
    server: Running, form: dict[str, Any], param: str, message: str, stream: bool
) -> None:
    answer = server.chat(**form, stream=stream)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["param"] == param and message in error["message"] and len(error["message"]) < 400
    server.assert_well()


BOMBS: list[dict[str, Any]] = [
    {"guided_regex": "(" * 60_000},
    {"guided_regex": "(a{1,999}){1,999}" * 50},
    {"guided_grammar": "start: " + ' ("a"|"b"|x)*' * 1200 + '\nx: "a" x | ""'},
    {"guided_json": {"enum": [f"value {number}" for number in range(20_000)]}},
    {"guided_json": {"properties": {f"p{number}": {} for number in range(4_000)}}},
    {"guided_json": {"allOf": [{"anyOf": [{"properties": {f"a{i}{j}": {}}} for j in range(8)]} for i in range(8)]}},
    {"guided_json": "[" * 100_000},
    {"guided_json": {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}},
    {"guided_choice": ["x" * 200_000]},
]


def test_bombs_are_refused_while_another_request_runs_and_notices_nothing(server: Running) -> None:
    body = {"prompt": "a neighbour", "max_tokens": 30, "seed": 1, "ignore_eos": True}
    alone = server.complete(**body).json()["choices"][0]["text"]
    with ThreadPoolExecutor(4) as pool:
        neighbours = [pool.submit(server.complete, **body) for _ in range(2)]
        answers = list(pool.map(lambda form: server.complete(prompt="x", max_tokens=8, **form), BOMBS * 2))
    statuses = {str(form)[:40]: answer.status_code for form, answer in zip(BOMBS * 2, answers, strict=True)}
    harmless = str(BOMBS[1])[:40]  # a large one, but it can be followed
    assert statuses.pop(harmless) in (200, 400)
    assert set(statuses.values()) == {400}
    assert {future.result().json()["choices"][0]["text"] for future in neighbours} == {alone}
    server.assert_well()


def test_one_that_comes_to_a_dead_end_fails_alone(server: Running) -> None:
    bodies = [{"prompt": "x", "guided_choice": [text], "max_tokens": 9} for text in ("abc", "ab\u00e4", "abd")]
    with ThreadPoolExecutor(3) as pool:
        first, dead, last = pool.map(lambda body: server.complete(**body), bodies)
    assert [answer.json()["choices"][0]["text"] for answer in (first, last)] == ["abc", "abd"]
    assert dead.status_code == 500 and "no token of the model can go on" in dead.json()["error"]["message"]
    streamed = server.complete(**bodies[1], stream=True)  # whether its first text went out before is chance
    assert streamed.status_code in (200, 500) and "no token of the model can go on" in streamed.text
    server.assert_well()


def test_what_the_limit_cuts_has_finish_reason_length(server: Running) -> None:
    answer = server.complete(prompt="hi", guided_regex="a{10}", max_tokens=4).json()["choices"][0]
    assert (answer["text"], answer["finish_reason"]) == ("aaaa", "length")


def test_unknown_parts_are_ignored_with_a_warning(server: Running) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": ARRAY, "colour": 1}, "shape": 2}
    answer = server.chat(response_format=form, max_tokens=20)
    ignored = answer.headers["x-octavo-ignored"].split(", ")
    assert sorted(ignored) == ["response_format.json_schema.colour", "response_format.shape"]


@pytest.mark.parametrize("stream", [False, True])
def test_beams_have_the_form(server: Running, stream: bool) -> None:
    body = {"prompt": "hi", "use_beam_search": True, "n": 4, "max_tokens": 9, "repetition_penalty": 1.2}
    body |= {"guided_regex": "[ab]{3}c{0,3}"}
    if stream:
        choices = [choice for event in server.events("/v1/completions", **body) for choice in event["choices"]]
    else:
        choices = server.complete(**body).json()["choices"]
    assert len({choice["text"] for choice in choices}) == 4
    assert all(re.fullmatch("[ab]{3}c{0,3}", choice["text"]) for choice in choices)
    assert [choice["finish_reason"] for choice in choices] == ["stop"] * 4
    server.assert_well()
